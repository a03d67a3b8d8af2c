"""Expected curves: made from runs, read back, held against another run."""

import pytest

from rubricem_agent.learn.expected import compare_with, load_expected, make_expected
from rubricem_agent.learn.metrics_log import ExamLine, RunLog
from rubricem_env.domain.errors import FileFormatError


def log(**answers):
    """A log of examinations alone, by step."""
    exams = [
        ExamLine(step=int(name.removeprefix("at_")), held_out={"answer": value}, valid=1.0)
        for name, value in answers.items()
    ]
    return RunLog([], exams, [])


EXPECTED = make_expected("whole", [log(at_0=0.5, at_8=0.6), log(at_0=0.5, at_8=0.7, at_16=0.8)], made_by="test")


def test_a_curve_is_the_range_over_runs_at_the_steps_that_all_examined():
    points = [(point.step, point.mean, point.lowest, point.highest) for point in EXPECTED.held_out_answer]

    assert points == [(0, 0.5, 0.5, 0.5), (8, pytest.approx(0.65), 0.6, 0.7)]


@pytest.mark.parametrize(("answer", "verdict"), [(0.65, "as expected"), (0.3, "below"), (0.9, "above")])
def test_a_run_is_held_against_the_latest_step_that_both_have(answer, verdict):
    found = compare_with(EXPECTED, log(at_0=0.5, at_8=answer, at_12=0.0))

    assert found is not None
    assert found.step == 8
    assert found.sentence.startswith(verdict)


def test_a_run_without_a_shared_step_is_not_compared():
    assert compare_with(EXPECTED, log(at_5=0.5)) is None


def test_a_curve_is_read_back_and_a_missing_one_is_none(tmp_path):
    (tmp_path / "whole.json").write_text(EXPECTED.model_dump_json(), encoding="utf-8")

    assert load_expected("whole", tmp_path) == EXPECTED
    assert load_expected("ss_grpo", tmp_path) is None


def test_a_damaged_curve_is_refused(tmp_path):
    (tmp_path / "whole.json").write_text("{}", encoding="utf-8")

    with pytest.raises(FileFormatError, match=r"is no expected curve at .* Make it anew"):
        load_expected("whole", tmp_path)
