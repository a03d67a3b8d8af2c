"""The examples that a run chooses by a rule."""

import hashlib
import json
from pathlib import Path

import pytest

from rubricem_agent.evals.benchmark import Loaded
from rubricem_agent.evals.dataset import Example
from rubricem_agent.evals.subsets import ablation_rows, choose, published_rows, rows_of_ids
from rubricem_agent.evals.suite import SUITE, rules_for
from rubricem_env.domain.errors import FileFormatError, UsageError
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


def test_a_limit_follows_the_published_rule_of_the_mode():
    assert choose(loaded("simpleqa"), limit=7).ids == ids(published_rows("simple_evals", SIZE, 7))
    assert choose(loaded("simpleqa", "drtulu"), limit=7).ids == ids(published_rows("drtulu", SIZE, 7))
    assert choose(loaded("drb"), limit=7).ids == ids(range(7))


def test_the_ablation_subset_is_the_same_hundred_and_can_be_truncated():
    whole = choose(loaded("drb"), "ablation")

    assert whole.ids == ids(ablation_rows(SIZE))
    assert choose(loaded("drb"), "ablation", limit=5).ids == whole.ids[:5]


def test_an_id_file_names_the_examples_and_goes_with_no_other_rule(tmp_path):
    path = tmp_path / "ids.txt"
    path.write_text("e9\ne2\n")

    assert choose(loaded("drb"), ids_file=path).ids == ("e9", "e2")
    with pytest.raises(UsageError, match="without --limit"):
        choose(loaded("drb"), ids_file=path, limit=1)


def test_more_examples_than_there_are_cannot_be_had():
    with pytest.raises(UsageError, match="301"):
        choose(loaded("drb"), limit=301)


RULES = json.loads((Path(__file__).parents[2] / "fixtures" / "benchmarks" / "subsets.json").read_text())["rules"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule['benchmark']}-{rule['k']}-{rule['rule'][:7]}")
def test_the_published_rules_pick_the_published_rows(rule: dict[str, object]) -> None:
    sampling = "simple_evals" if str(rule["rule"]).startswith("simple-evals") else "drtulu"

    rows = published_rows(sampling, int(str(rule["n"])), int(str(rule["k"])))

    assert rows[:20] == rule["first20"]
    assert hashlib.sha256(",".join(map(str, rows)).encode()).hexdigest() == rule["sha256_of_comma_joined"]


def test_the_ablation_subset_is_100_rows_and_the_same_every_time() -> None:
    rows = ablation_rows(5000)

    assert len(set(rows)) == 100
    assert rows == sorted(rows) == ablation_rows(5000)
    assert ablation_rows(3) == [0, 1, 2]


def test_dr_tulu_takes_all_rows_where_there_are_fewer() -> None:
    assert sorted(published_rows("drtulu", 3, 1000)) == [0, 1, 2]


@pytest.mark.parametrize("size", [0, 4])
def test_an_impossible_size_is_refused(size: int) -> None:
    with pytest.raises(UsageError, match="ask for 1 to 3"):
        published_rows("simple_evals", 3, size)


def test_listed_ids_become_rows_in_the_order_of_the_list(tmp_path: Path) -> None:
    path = tmp_path / "ids.txt"
    path.write_text("c\n\n a \n")

    assert rows_of_ids(path, ["a", "b", "c"]) == [2, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [("z", "line 1: the id 'z' is not in"), ("a\na", "line 2: .*twice"), ("", "is empty. Write one id per line")],
)
def test_a_list_with_an_unknown_or_repeated_id_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "ids.txt"
    path.write_text(text)

    with pytest.raises(FileFormatError, match=message):
        rows_of_ids(path, ["a"])


def test_a_missing_list_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="one id per line"):
        rows_of_ids(tmp_path / "absent.txt", ["a"])


def test_ids_may_be_a_json_list_as_dr_tulu_publishes_them(tmp_path):
    path = tmp_path / "subset.json"
    path.write_text('["c", "a"]')
    assert rows_of_ids(path, ["a", "b", "c"]) == [2, 0]

    path.write_text('["c", "x"]')
    with pytest.raises(FileFormatError, match=r"subset\.json element 1: the id 'x' is not in the benchmark"):
        rows_of_ids(path, ["a", "b", "c"])
