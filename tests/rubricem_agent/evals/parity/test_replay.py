import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from rubricem_agent.cli.parity import parity
from rubricem_agent.evals.parity.replay import RecordedCase, case_differences, read_cases, replay, replay_case
from rubricem_env.domain.errors import FileFormatError

FIXTURES = Path(__file__).parents[3] / "fixtures" / "benchmarks"
FILES = sorted(FIXTURES.glob("*.dev.jsonl"))
EXCEPTED = {
    "race-agg-published-claude37": "the published rows and the README row of the same model differ (42.18 and 40.67), "
    "so that agreeing with the file certifies neither"
}


def recorded_cases() -> list[object]:
    cases = [case for path in FILES for case in read_cases(path)]
    return [
        pytest.param(
            case, id=case.id, marks=[pytest.mark.skip(reason=EXCEPTED[case.id])] if case.id in EXCEPTED else []
        )
        for case in cases
    ]


def write_lines(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def a_case(**changes: object) -> str:
    case = {
        "id": "one",
        "benchmark": "simpleqa",
        "unit": "parse",
        "input": {"judge_text": "A"},
        "expected": {"letter": "A", "is_correct": True},
    }
    return json.dumps(case | changes)


def parity_of(*paths: Path) -> tuple[int, list[str]]:
    """The exit code and the lines of `rubricem parity`."""
    app = typer.Typer()
    app.command()(parity)
    result = CliRunner().invoke(app, [str(path) for path in paths])
    return result.exit_code, result.output.splitlines()


@pytest.mark.parametrize("case", recorded_cases())
def test_the_recorded_official_result_is_reproduced(case: RecordedCase) -> None:
    assert replay_case(case) == []


def test_a_whole_file_reports_how_many_cases_agree() -> None:
    agreed, total, disagreements = replay(FIXTURES / "simpleqa.dev.jsonl")

    assert (agreed, total, disagreements) == (24, 24, ())


def test_a_disagreement_is_written_with_id_expected_and_got_and_exits_with_1(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "off.jsonl", a_case(expected={"letter": "B"}))

    assert parity_of(path) == (1, [f"{path}: 0/1", "  one: letter: expected 'B', got 'A'"])


def test_an_unknown_unit_is_a_disagreement_with_a_sentence(tmp_path: Path) -> None:
    agreed, _, disagreements = replay(write_lines(tmp_path / "new.jsonl", a_case(unit="haiku")))

    assert agreed == 0
    assert "no scorer is known for unit 'haiku'" in disagreements[0][1][0]


def test_an_unknown_variant_is_a_disagreement_and_a_known_one_is_compared(tmp_path: Path) -> None:
    variants = {"inspect_evals_original_strict": "C", "another_harness": "A"}

    differences = replay(write_lines(tmp_path / "v.jsonl", a_case(variants=variants)))[2][0][1]

    assert differences[0] == "variants.inspect_evals_original_strict: expected 'C', got 'A'"
    assert "another_harness" in differences[1]


def test_an_input_that_does_not_fit_its_unit_is_a_disagreement(tmp_path: Path) -> None:
    _, _, disagreements = replay(write_lines(tmp_path / "odd.jsonl", a_case(input={"judge_text": 3})))

    assert "judge_text" in disagreements[0][1][0]


def test_an_expected_error_disagrees_with_a_result_and_the_other_way_round(tmp_path: Path) -> None:
    raising = a_case(benchmark="researchqa", unit="level", input={"label": "bad"}, expected={"number": 1})
    path = write_lines(tmp_path / "e.jsonl", a_case(expected={"error": "KeyError"}), raising)

    (_, first), (_, second) = replay(path)[2]

    assert first == ("error: expected 'KeyError', got nothing",)
    assert second == ("number: expected 1, got nothing",)


@pytest.mark.parametrize("line", ["{", "[]", '"text"', '{"id": "x"}', '{"id": 1}'])
def test_a_malformed_line_is_named_by_its_number_and_exits_with_2(tmp_path: Path, line: str) -> None:
    path = write_lines(tmp_path / "bad.jsonl", a_case(), "", line)

    code, written = parity_of(path)

    assert code == 2
    assert written[0].startswith("rubricem: ")
    assert f"{path} line 3" in written[0]


def test_an_unreadable_file_does_not_stop_the_others(tmp_path: Path) -> None:
    good = write_lines(tmp_path / "ok.jsonl", a_case())

    code, written = parity_of(tmp_path / "absent.jsonl", good)

    assert code == 2
    assert written[1] == f"{good}: 1/1"


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="is empty"):
        replay(write_lines(tmp_path / "empty.jsonl", ""))


def test_a_recorded_nan_agrees_with_a_computed_one(tmp_path: Path) -> None:
    replies = [[json.dumps({"score": float("nan"), "confidence": 1})]]
    case = a_case(
        benchmark="researchrubrics",
        unit="task_binary",
        input={"rubrics": [{"weight": 1}], "judge_replies": replies},
        expected={"compliance_score": float("nan")},
    )

    assert replay(write_lines(tmp_path / "nan.jsonl", case))[0] == 1


def test_text_that_has_no_utf8_form_does_not_stop_a_replay(tmp_path: Path) -> None:
    case = a_case(input={"judge_text": "\ud800 A"})

    assert replay(write_lines(tmp_path / "s.jsonl", case))[0] == 1


@pytest.mark.parametrize(
    ("expected", "computed"),
    [
        ({"x": 0.1 + 0.2}, {"x": 0.3}),
        ({"x": 0}, {"x": 0.0}),
        ({"x": float("nan")}, {"x": float("nan")}),
        ({"x": [1, {"y": None}]}, {"x": (1, {"y": None})}),
        ({"x": 1, "note": "said"}, {"x": 1, "beyond": 2}),
        ({"status": "empty_model_response"}, {"status": "empty_response"}),
    ],
)
def test_values_that_mean_the_same_agree(expected: dict[str, object], computed: dict[str, object]) -> None:
    assert case_differences(expected, computed) == []


@pytest.mark.parametrize(
    ("expected", "computed", "where"),
    [
        ({"x": 0.3}, {"x": 0.3 + 1e-11}, "x"),
        ({"x": True}, {"x": 1}, "x"),
        ({"x": None}, {"x": 0}, "x"),
        ({"x": {"y": 1}}, {"x": {"y": 1, "z": 2}}, "x.z"),
        ({"x": [1, 2]}, {"x": [1, 3]}, "x[1]"),
        ({"x": [1]}, {"x": [1, 2]}, "x"),
        ({"x": None}, {}, "x"),
    ],
)
def test_a_difference_names_its_position(expected: dict[str, object], computed: dict[str, object], where: str) -> None:
    (sentence,) = case_differences(expected, computed)

    assert sentence.startswith(f"{where}: expected ")
