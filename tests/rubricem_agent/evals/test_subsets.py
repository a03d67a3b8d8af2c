import hashlib
import json
from pathlib import Path

import pytest

from rubricem_agent.evals.base import BenchmarkFileError
from rubricem_agent.evals.manifest import ablation_rows, drtulu_rows, official_rows, rows_of_ids
from rubricem_env.domain.errors import UsageError

RULES = json.loads((Path(__file__).parents[2] / "fixtures" / "benchmarks" / "subsets.json").read_text())["rules"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule['benchmark']}-{rule['k']}-{rule['rule'][:7]}")
def test_the_published_rules_pick_the_published_rows(rule: dict[str, object]) -> None:
    pick = official_rows if str(rule["rule"]).startswith("simple-evals") else drtulu_rows

    rows = pick(int(str(rule["n"])), int(str(rule["k"])))

    assert rows[:20] == rule["first20"]
    assert hashlib.sha256(",".join(map(str, rows)).encode()).hexdigest() == rule["sha256_of_comma_joined"]


def test_the_two_published_samples_of_simpleqa_share_230_rows() -> None:
    assert len({*official_rows(4326, 1000)} & {*drtulu_rows(4326, 1000)}) == 230


def test_the_ablation_subset_is_100_rows_and_the_same_every_time() -> None:
    rows = ablation_rows(5000)

    assert len(set(rows)) == 100
    assert rows == sorted(rows) == ablation_rows(5000)
    assert ablation_rows(3) == [0, 1, 2]


def test_the_predecessor_takes_all_rows_where_there_are_fewer() -> None:
    assert sorted(drtulu_rows(3, 1000)) == [0, 1, 2]


@pytest.mark.parametrize("ask", [lambda: official_rows(3, 4), lambda: official_rows(3, 0), lambda: drtulu_rows(0, 1)])
def test_an_impossible_size_is_refused(ask: object) -> None:
    with pytest.raises(UsageError, match="Ask for fewer"):
        ask()  # type: ignore[operator]


def test_listed_ids_become_rows_in_the_order_of_the_list(tmp_path: Path) -> None:
    path = tmp_path / "ids.txt"
    path.write_text("c\n\n a \n")

    assert rows_of_ids(path, ["a", "b", "c"]) == [2, 0]


@pytest.mark.parametrize(
    ("text", "message"), [("z", "line 1: the id 'z' is not in"), ("a\na", "line 2: .*twice"), ("", "lists no id")]
)
def test_a_list_with_an_unknown_or_repeated_id_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "ids.txt"
    path.write_text(text)

    with pytest.raises(BenchmarkFileError, match=message):
        rows_of_ids(path, ["a"])


def test_a_missing_list_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkFileError, match="one id per line"):
        rows_of_ids(tmp_path / "absent.txt", ["a"])
