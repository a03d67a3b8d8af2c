"""The comparison of recipes on many questions: its pairs, the width of its intervals, and what it does not repeat."""

import json
from pathlib import Path

import numpy as np
import pytest

from rubricem_agent.policy.base import model_folder
from tests.bench.paired_recipes import interval, main, report


def test_differences_are_paired_by_seed_and_question() -> None:
    easy, hard = [1.0, 0.5] * 20, [0.5, 0.0] * 20
    answers = {
        ("ss_grpo", 0, 0.0): easy,
        ("answer_only", 0, 0.0): [each - 0.125 for each in easy],
        ("ss_grpo", 1, 0.0): hard,
        ("answer_only", 1, 0.0): [each - 0.125 for each in hard],
        ("whole", 0, 0.0): easy,
    }

    (line,) = [line for line in report(answers).splitlines() if line.startswith("SS-GRPO less answer-only GRPO")]

    assert line == (
        "SS-GRPO less answer-only GRPO, temperature 0: +0.125 (+0.125 to +0.125); "
        "seeds 0, 1: +0.125, +0.125; 40 questions"
    )


def test_an_interval_covers_seeds_that_differ_as_well_as_questions() -> None:
    rng = np.random.default_rng(1)
    alike = rng.normal(0.1, 0.2, size=(5, 200))
    apart = alike + np.array([-0.1, -0.05, 0.0, 0.05, 0.1])[:, None]

    (low, high), (lower, higher) = interval(alike), interval(apart)

    assert low < alike.mean() < high
    assert higher - lower > 1.5 * (high - low)


def test_an_answered_run_is_not_answered_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "out" / "ss_grpo" / "seed-3" / "model"
    model.parent.mkdir(parents=True)
    model.symlink_to(model_folder(Path("tiny")))
    rows = tmp_path / "rows.jsonl"
    known = {"run": "ss_grpo", "seed": 3, "temperature": 0.0, "valid": 1.0, "answers": [0.5]}
    rows.write_text(json.dumps(known) + "\n")

    assert main([str(tmp_path / "out"), "--rows", str(rows), "--worlds", "1"]) == 0

    first, second = map(json.loads, rows.read_text().splitlines())
    assert first == known
    assert (second["temperature"], len(second["answers"])) == (1.0, 24)
    assert "temperature 0:" not in capsys.readouterr().err
