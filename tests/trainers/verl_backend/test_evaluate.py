"""Evaluation of the checkpoints of a veRL run: each checkpoint once, and the log has the scores."""

import json
import shutil

import pytest

from rubricem_env.domain.errors import ConfigError
from rubricem_records.runs.run_log import read_log
from trainers.verl_backend import evaluate
from trainers.verl_backend.settings import read_section
from trainers.verl_backend.watch import merge_shards

SECTION = {"almanac": {}, "system": "Search.", "max_turn_tokens": 16, "limits": {"max_tokens": 48}}


@pytest.fixture
def run(tmp_path, model_folder):
    told = {**read_section(SECTION).model_dump(mode="json"), "policy": str(model_folder)}
    (tmp_path / "config.json").write_text(json.dumps(told))
    (tmp_path / "metrics.jsonl").touch()
    for step in (2, 10):
        (tmp_path / f"global_step_{step}" / "actor").mkdir(parents=True)
    return tmp_path


def test_the_policy_at_the_start_and_each_checkpoint_are_evaluated_once(run, model_folder):
    merged = []

    def merge(actor, target):
        merged.append(actor.parent.name)
        shutil.copytree(model_folder, target)

    evaluate.evaluate_run(run, merge=merge, max_questions=1)
    evaluate.evaluate_run(run, merge=merge, max_questions=1)
    assert [line.step for line in read_log(run).evaluations] == [0, 2, 10]
    assert merged == ["global_step_2", "global_step_10"]


def test_a_run_outside_the_almanac_is_refused(run, capsys):
    (run / "config.json").write_text("{}")
    assert evaluate.main([str(run)]) == 2
    assert "`rubricem eval`" in capsys.readouterr().err


def test_a_checkpoint_that_cannot_be_merged_is_named(run):
    with pytest.raises(ConfigError, match=r"could not merge .*global_step_2/actor"):
        merge_shards(run / "global_step_2" / "actor", run / "merged")
