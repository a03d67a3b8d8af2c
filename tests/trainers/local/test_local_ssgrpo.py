"""The whole loop with a policy that knows nothing: it runs, writes down what happened, and resumes to the same numbers."""

import asyncio
import json
from pathlib import Path

import pytest

from rubricem_agent.learn.errors import CheckpointError
from trainers.local.keeping import trim_log
from trainers.local.run_parts import make_parts
from trainers.local.settings import LocalConfig
from trainers.local_ssgrpo import main, train


def lines(config: LocalConfig) -> list[dict]:
    """The log without what a clock measured."""
    rows = [json.loads(line) for line in (config.out / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        row.pop("seconds", None)
    return rows


def run(config: LocalConfig) -> list[dict]:
    asyncio.run(train(make_parts(config)))
    return lines(config)


def test_a_run_meets_each_question_twice_and_grades_itself_before_and_after(config):
    rows = run(config)
    assert [row.get("encounter") for row in rows] == [None, "new", "repeat", None]
    assert ["held_out" in row for row in rows] == [True, False, False, True]
    assert (config.out / "model" / "config.json").is_file()


def test_reflections_of_step_one_are_trained_on_in_step_two(config):
    rows = run(config)
    assert rows[1]["staleness"] == []
    assert rows[2]["staleness"] == [1]


def test_without_the_meta_policy_nothing_is_reflected_on(config):
    rows = run(config.model_copy(update={"meta_policy": False}))
    assert [row.get("staleness") for row in rows[1:3]] == [[], []]
    assert rows[2]["bank"] == 0


def test_a_run_that_is_stopped_and_resumed_writes_the_same_log(config, tmp_path):
    whole = run(config)
    first = config.model_copy(update={"out": tmp_path / "parts", "steps": 1, "evaluate_every": 9})
    run(first)
    resumed = run(config.model_copy(update={"out": tmp_path / "parts"}))
    # the short run graded itself at its end, which is step 1
    assert [row for row in resumed if not (row["step"] == 1 and "held_out" in row)] == whole


def test_a_checkpoint_of_another_recipe_is_refused(config):
    run(config.model_copy(update={"steps": 1}))
    with pytest.raises(CheckpointError, match="other"):
        run(config.model_copy(update={"credit": "terminal"}))


def test_a_half_written_line_and_later_steps_are_dropped_from_the_log(tmp_path: Path):
    log = tmp_path / "metrics.jsonl"
    log.write_text('{"step": 1, "a": 0}\n{"step": 2, "a": 0}\n{"step": 2, "a"')
    trim_log(log, 1)
    assert log.read_text() == '{"step": 1, "a": 0}\n'


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("polcy: x\nout: y\n", "did you mean 'policy'"),
        ("policy: x\nout: y\nreflection: {num_candidate: 2}\n", "did you mean 'num_candidates'"),
        ("policy: nowhere\nout: y\n", "config.json"),
    ],
)
def test_the_command_refuses_a_bad_config_with_one_sentence(tmp_path, capsys, content, sentence):
    path = tmp_path / "config.yaml"
    path.write_text(content)
    assert main(["--config", str(path)]) == 2
    shown = capsys.readouterr().err
    assert sentence in shown
    assert len(shown.splitlines()) == 1
