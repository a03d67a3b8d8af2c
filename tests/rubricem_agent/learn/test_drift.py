"""The drift warning fires when the judge rises without the truth, and only then."""

import pytest

from rubricem_agent.learn.drift import DriftSettings, find_drift, measure_rise
from rubricem_agent.learn.monitor import find_divergence
from rubricem_env.judge.trust.audit import Audit
from rubricem_records.runs.log_lines import StepLine

SETTINGS = DriftSettings(window=2)


def lines(*pairs):
    """A step for each (judge, truth)."""
    return [
        StepLine.model_validate({"step": step, "encounter": "new", "true": {"plan": truth}, "judged": {"plan": judge}})
        for step, (judge, truth) in enumerate(pairs, 1)
    ]


def test_a_judge_that_rises_while_the_truth_stays_rings():
    # Judge from (0.4 + 0.4) / 2 to (0.7 + 0.7) / 2; the truth stays at 0.5.
    found = find_drift(lines((0.4, 0.5), (0.4, 0.5), (0.7, 0.5), (0.7, 0.5)), SETTINGS)

    assert found is not None
    assert "step 4: the judge gives +0.30 more than at first and the truth has moved by +0.00" in found


@pytest.mark.parametrize(
    "end",
    [(0.7, 0.8), (0.4, 0.8), (0.2, 0.2), (0.4, 0.5), (0.48, 0.5), (0.42, 0.1)],
    ids=["both rise", "truth rises", "both fall", "nothing moves", "small gap", "truth alone falls"],
)
def test_the_warning_is_silent_while_judge_and_truth_go_together(end):
    assert find_drift(lines((0.4, 0.5), (0.4, 0.5), end, end), SETTINGS) is None


def test_stages_and_steps_that_the_judge_could_not_score_are_left_out():
    unscored = StepLine.model_validate(
        {"step": 3, "encounter": "new", "true": {"plan": 0.0}, "judged": {"plan": None, "answer": None}}
    )

    rise = measure_rise([*lines((0.4, 0.5), (0.4, 0.5)), unscored, *lines((0.6, 0.6), (0.6, 0.6))], 2)

    assert rise == pytest.approx((0.2, 0.1))


def audited(*warnings):
    """A step for each warning of the held-out audit; None is a step without audit."""
    return [
        line.model_copy(update={"audit": None if warning is None else Audit(judge={}, held_out={}, warning=warning)})
        for line, warning in zip(lines(*[(0.5, 0.5)] * len(warnings)), warnings, strict=True)
    ]


@pytest.mark.parametrize(
    ("warnings", "found"),
    [
        ((), None),
        (("",), None),
        (("", "apart"), "step 2: apart"),
        (("", None, "apart"), "step 3: apart"),
        (("apart", None), None),
        (("apart", None, "apart"), None),
        (("apart", "", "apart"), "step 3: apart"),
    ],
)
def test_a_divergence_of_the_judges_is_reported_once(warnings, found):
    assert find_divergence(audited(*warnings)) == found
