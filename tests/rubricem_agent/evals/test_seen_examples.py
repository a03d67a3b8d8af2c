"""Examples that training or memory has seen are left out."""

import json
from pathlib import Path

import pytest

from rubricem_agent.evals.benchmark import Loaded
from rubricem_agent.evals.dataset import Example
from rubricem_agent.evals.seen_examples import find_seen, seen_keys, without_seen
from rubricem_agent.evals.suite import SUITE, rules_for
from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_env.domain.trajectory import query_key
from rubricem_records.evaluations.manifest import Inputs
from rubricem_records.evaluations.rules import EvaluationMode

SIZE = 300


def loaded(name: str, mode: EvaluationMode = "official") -> Loaded:
    examples = tuple(Example(id=f"e{number}", prompt_text=f"question {number}") for number in range(SIZE))
    return Loaded(examples, {}, None, "", benchmark=SUITE[name], grader=SUITE[name].grader(rules_for(name, mode)))


def inputs(*example_ids: str) -> Inputs:
    return Inputs(path="", sha256="", rows=3, ids=example_ids, subset="all")


def ids(rows) -> tuple[str, ...]:
    return tuple(f"e{row}" for row in rows)


@pytest.mark.parametrize(
    "row",
    [
        {"question": " question 3 "},
        {"trajectory": {"question": "question 3"}},
        {"query_key": query_key("question 3")},
        {"problem": "question 3", "answer": 1},
    ],
)
def test_a_seen_question_is_found_by_its_key_wherever_the_row_holds_it(tmp_path, row):
    path = tmp_path / "train.jsonl"
    path.write_text(json.dumps(row))

    assert find_seen(loaded("drb").examples, seen_keys(path)) == ("e3",)


def test_a_training_file_without_any_question_is_refused(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text('{"text": "x"}\n[1]')

    with pytest.raises(FileFormatError, match="names no question"):
        seen_keys(path)


def test_nothing_is_left_where_all_was_seen():
    with pytest.raises(UsageError, match="nothing is left"):
        without_seen(inputs("a", "b"), {"a", "b"}, drops=True, where="train.jsonl")


def test_what_two_files_have_seen_is_left_out_and_named_together():
    one = without_seen(inputs("a", "b", "c"), {"a"}, drops=True, where="one")
    two = without_seen(one, {"b"}, drops=True, where="two")

    assert (two.ids, two.left_out) == (("c",), ("a", "b"))


RULES = json.loads((Path(__file__).parents[2] / "fixtures" / "benchmarks" / "subsets.json").read_text())["rules"]
