import json

import pytest

from rubricem_agent.evals.benchmarks.draco import BENCHMARK, load, normalized_score, pass_rate
from rubricem_agent.evals.dataset import DataPaths
from rubricem_agent.evals.extraction import Extracted
from rubricem_agent.evals.grading import Case, replay
from rubricem_agent.evals.suite import rules_for
from rubricem_env.domain.errors import FileFormatError

RUBRIC = {
    "id": "r",
    "sections": [
        {
            "id": "factual-accuracy",
            "criteria": [
                {"id": "a", "weight": 10, "requirement": "States a"},
                {"id": "b", "weight": -5, "requirement": "Says b"},
            ],
        }
    ],
}


def write(path, **changes):
    row = {"id": "t1", "domain": "Law", "problem": "What is a?", "answer": json.dumps(RUBRIC), **changes}
    path.write_text(json.dumps(row) + "\n")
    return DataPaths(path)


@pytest.fixture
def case(tmp_path):
    data = load(write(tmp_path / "draco.jsonl"), any_version=True)
    return Case(data.examples[0], data.gold["t1"], Extracted("a. b.", "given answer"))


def status(*said):
    replies = [said_one if said_one.startswith("?") else f'{{"criterion_status": "{said_one}"}}' for said_one in said]
    return lambda question: (replies[int(question.key.removeprefix("criterion-"))],)


def test_weights_met_over_positive_weights_is_clipped_for_each_task(case):
    grader = BENCHMARK.grader(rules_for("draco", "official"))

    grade = replay(grader.grade(case), status("MET", "MET"))

    # (10 - 5) / 10; the positive criterion passes and the error does not: 1/2.
    assert (grade.score, grade.metrics["pass_rate"]) == (0.5, 0.5)
    assert replay(grader.grade(case), status("UNMET", "MET")).score == 0.0
    assert normalized_score([-5, -15], [True, False]) == 0.75
    assert pass_rate([], []) == 0.0


def test_the_judge_sees_the_kind_of_a_criterion_and_not_its_weight(case):
    first, second = next(BENCHMARK.grader(rules_for("draco", "official")).grade(case))

    assert "Criterion (positive)\nStates a" in first.prompt
    assert "Criterion (negative)\nSays b" in second.prompt
    assert "10" not in first.prompt
    assert "What is a?" in first.prompt


def test_a_criterion_without_a_verdict_takes_the_task_out_and_is_the_worst_case_strictly(case):
    graded = {
        mode: replay(BENCHMARK.grader(rules_for("draco", mode)).grade(case), status("MET", "?"))
        for mode in ("official", "strict")
    }

    assert (graded["official"].score, graded["official"].worst) == (None, 0.5)
    assert (graded["strict"].score, graded["strict"].unreadable) == (0.5, 1)


@pytest.mark.parametrize("answer", ["not JSON", '{"sections": []}', "[]"])
def test_a_rubric_that_cannot_be_read_is_refused_with_its_line(tmp_path, answer):
    with pytest.raises(FileFormatError, match="line 1 is malformed: at answer"):
        load(write(tmp_path / "draco.jsonl", answer=answer), any_version=True)
