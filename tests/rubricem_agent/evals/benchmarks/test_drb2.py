import json

import pytest

from rubricem_agent.evals.benchmarks.drb2 import BENCHMARK, MAX_CHARACTERS, batches_of, load
from rubricem_agent.evals.dataset import DataPaths
from rubricem_agent.evals.extraction import Extracted
from rubricem_agent.evals.grading import Case, replay
from rubricem_agent.evals.suite import rules_for

RUBRIC = {"info_recall": ["States a", "States b"], "analysis": ["Infers c"], "presentation": ["Has a table"]}
BLOCKED = {"title": "The forbidden article", "authors": [], "urls": ["https://forbidden.example"]}


@pytest.fixture
def case(tmp_path):
    path = tmp_path / "tasks.jsonl"
    content = {"task": "Write of a.", "rubric": RUBRIC, "blocked": BLOCKED}
    path.write_text(json.dumps({"id": "task1", "idx": 7, "language": "en", "prompt": "Write it.", "content": content}))
    data = load(DataPaths(path), any_version=True)
    return Case(data.examples[0], data.gold["7"], Extracted("A report. " * 20_000, "given answer"))


def scored(*scores):
    items = [item for batch in RUBRIC.values() for item in batch]
    results = [{"rubric_item": item, "score": score} for item, score in zip(items, scores, strict=True)]
    # One field a line: the official reading escapes quotation marks between two keys of one line, and fails on it.
    return lambda question: (json.dumps({"results": results}, indent=1),)


def test_a_task_is_the_share_of_items_that_are_met_without_the_blocked_source(case):
    grade = replay(BENCHMARK.grader(rules_for("drb2", "official")).grade(case), scored(1, -1, 0, 1))

    # Two of four; of two, one and one items: 1/2, 0 and 1; one of four is met from the blocked source.
    assert grade.score == 0.5
    assert grade.metrics == {"info_recall": 0.5, "analysis": 0.0, "presentation": 1.0, "blocked_rate": 0.25}


def test_the_judge_gets_task_items_and_blocked_source_as_json_and_150000_characters_of_the_report(case):
    (question,) = next(BENCHMARK.grader(rules_for("drb2", "official")).grade(case))

    shown = json.loads(question.prompt[question.prompt.index("{\n") : question.prompt.rindex("\n}") + 2])
    assert shown == {
        "task": "Write of a.",
        "rubric_items": [i for own in RUBRIC.values() for i in own],
        "blocked": BLOCKED,
    }
    assert question.prompt.count("A report. ") == MAX_CHARACTERS // len("A report. ")


def test_a_batch_without_a_valid_reply_takes_the_task_out(case):
    def broken(question):
        return ("no",) * question.tries

    official = replay(BENCHMARK.grader(rules_for("drb2", "official")).grade(case), broken)
    strict = replay(BENCHMARK.grader(rules_for("drb2", "strict")).grade(case), broken)

    assert (official.score, official.unreadable, strict.score) == (None, 10, 0.0)


def test_items_are_judged_fifty_at_a_time_in_the_order_of_the_dimensions():
    rubric = {"presentation": ["p"], "info_recall": [f"i{n}" for n in range(60)]}

    first, second = batches_of(rubric, 50)

    assert (len(first), second[-1]) == (50, "p")
