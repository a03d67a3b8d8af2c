"""Reuse at inference: gains are counted question by question, and a folder without a run is refused."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest

from rubricem_agent.learn.checkpoint import save_checkpoint
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.snapshot import save_snapshot
from rubricem_env.domain.errors import ConfigError
from tests.bench.reuse_evaluation import describe, load_bank, main
from tests.fakes import PlaneEmbedder, make_reflection
from trainers.local.run import make_run
from trainers.local.settings import LocalConfig
from trainers.local.ssgrpo import train


def test_a_gain_is_the_mean_over_the_questions_with_an_interval_that_holds_it():
    base = np.array([[0.0, 0.5, 0.5, 0.2], [1.0, 0.5, 0.5, 0.4]])
    better = base + np.array([[0.0, 0.0, 0.1, 0.3], [0.0, 0.0, 0.1, 0.1]])

    none, within = describe([("none", base, 0.0), ("within", better, 0.5)], seed=0)

    assert none["answer"] == {"mean": 0.3, "gain": 0.0, "interval": [0.0, 0.0]}
    assert within["answer"] == {"mean": 0.5, "gain": 0.2, "interval": [0.1, 0.3]}
    assert within["review"]["interval"] == [0.1, 0.1]
    assert within["questions_served"] == 0.5


@pytest.mark.parametrize("kept", [None, "{}"])
def test_a_folder_without_a_run_is_refused_in_one_sentence(kept: str | None, tmp_path: Path, capsys):
    if kept is not None:
        (tmp_path / "config.json").write_text(kept, encoding="utf-8")

    assert main([str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err


def test_another_runs_bank_can_be_borrowed_as_its_last_checkpoint_left_it(tmp_path: Path):
    left, own = (RubricBank.in_memory(PlaneEmbedder()) for _ in range(2))
    left.write(make_reflection("at 40"))
    part = ("bank.npz", lambda path: save_snapshot(left, path, step=3), 3)
    save_checkpoint(tmp_path / "checkpoints", step=3, parts={"bank": part})

    load_bank(own, tmp_path)

    assert own.items() == left.items()


def test_a_run_without_a_checkpoint_lends_no_bank(tmp_path: Path):
    with pytest.raises(ConfigError, match="holds no checkpoint"):
        load_bank(RubricBank.in_memory(PlaneEmbedder()), tmp_path)


@pytest.mark.no_cover
def test_a_run_is_evaluated_without_its_bank_across_questions_and_within_them(config: LocalConfig, tmp_path, capsys):
    asyncio.run(train(make_run(config.model_copy(update={"steps": 1}))))

    assert main([str(config.out), "--repeats", "1", "--json", str(tmp_path / "rows.json")]) == 0
    assert [row["reuse"] for row in json.loads((tmp_path / "rows.json").read_text())] == ["none", "cross", "within"]
    assert main([str(config.out), "--repeats", "1", "--json", str(tmp_path / "no" / "such.json")]) == 2
    shown = capsys.readouterr()
    assert shown.out.count("of questions served") == 6
    assert "cannot write" in shown.err
