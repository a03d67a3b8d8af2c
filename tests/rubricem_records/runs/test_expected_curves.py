"""Expected curves: made from runs, read back, held against another run."""

from pathlib import Path

import pytest

from rubricem_env.domain.errors import FileFormatError
from rubricem_records.runs.expected_curves import compare_with, find_expected, make_expected
from rubricem_records.runs.log_lines import EvaluationLine
from rubricem_records.runs.run_log import RunLog


def log(**answers):
    """A log of evaluations alone, by step."""
    evaluations = [
        EvaluationLine(step=int(name.removeprefix("at_")), held_out={"answer": value}, valid=1.0)
        for name, value in answers.items()
    ]
    return RunLog([], evaluations, [])


SETTINGS = {
    "policy": "tiny",
    "questions_per_step": 8,
    "group_size": 8,
    "window": 3,
    "learning_rate": 6e-5,
    "temperature": 1.0,
    "held_out": "test",
    "seed": 4,
}
EXPECTED = make_expected(
    "whole", [log(at_0=0.5, at_8=0.6), log(at_0=0.5, at_8=0.7, at_16=0.8)], settings=SETTINGS, made_by="test"
)


def test_a_curve_is_the_range_over_runs_at_the_steps_that_all_evaluated():
    points = [(point.step, point.mean, point.lowest, point.highest) for point in EXPECTED.held_out_answer]

    assert points == [(0, 0.5, 0.5, 0.5), (8, pytest.approx(0.65), 0.6, 0.7)]


@pytest.mark.parametrize(("answer", "verdict"), [(0.65, "as expected"), (0.3, "below"), (0.9, "above")])
def test_a_run_is_compared_at_the_latest_step_that_both_have(answer, verdict):
    comparison = compare_with(EXPECTED, log(at_0=0.5, at_8=answer, at_12=0.0))

    assert comparison is not None
    assert "at step 8" in comparison
    assert comparison.startswith(verdict)
    assert compare_with(EXPECTED, log(at_5=0.5)) is None


def test_a_curve_is_found_by_its_recipe_and_the_settings_that_decide_it(tmp_path):
    (tmp_path / "any-name.json").write_text(EXPECTED.model_dump_json(), encoding="utf-8")

    assert find_expected("whole", {**SETTINGS, "seed": 7, "out": "elsewhere"}, tmp_path) == EXPECTED
    assert find_expected("ss_grpo", SETTINGS, tmp_path) is None
    assert find_expected("whole", {**SETTINGS, "learning_rate": 1e-4}, tmp_path) is None
    assert find_expected("whole", {"algorithm": "verl's"}, tmp_path) is None


def test_a_damaged_curve_is_refused(tmp_path):
    (tmp_path / "whole.json").write_text("{}", encoding="utf-8")

    with pytest.raises(FileFormatError, match=r"is not an expected curve: at .* Make it again"):
        find_expected("whole", SETTINGS, tmp_path)


def test_settings_of_another_kind_make_no_curve():
    with pytest.raises(FileFormatError, match="not those of a local run"):
        make_expected("whole", [log(at_0=0.5)], settings={}, made_by="test")


def test_the_demo_has_a_curve_of_five_seeds_that_rises_by_at_least_0_15():
    local = pytest.importorskip("trainers.local.settings", reason="needs torch", exc_type=ImportError)
    from trainers.settings import read_settings

    demo = read_settings(Path("configs/demo_almanac.yaml"), local.LocalConfig).model_dump(mode="json")
    curve = find_expected("ss_grpo", demo)

    assert curve is not None
    assert curve.seeds == 5
    assert curve.held_out_answer[-1].lowest - curve.held_out_answer[0].highest >= 0.15
