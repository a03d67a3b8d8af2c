"""Reflections scored by rule, with the numbers worked out by hand."""

import pytest

from rubricem_env.domain.base import Stage
from rubricem_env.domain.judgement import RubricScore
from rubricem_env.judge.reflections import ReflectionTask
from rubricem_env.judge.rules.reflections import judge_reflections
from rubricem_env.judge.scoring import score_trajectory
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_env.testing.judges import careless
from tests.fakes import rubric

QUESTION = "Which river carries amber barges?"


def score_of(text, *lost):
    """What one candidate earns where the attempt lost these rubrics wholly."""
    scores = {one.id: RubricScore.whole(one.id, 0, "no") for one in lost}
    judgement = score_trajectory(list(Stage), lost, rubric_scores=scores)
    task = ReflectionTask(QUESTION, parse_trajectory(careless()), judgement, lost, (text,), mode="pointwise", seed=1)
    (scored,) = judge_reflections(task)
    return scored


def takeaways(*lessons):
    return "<reflection_takeaways>\n" + "\n".join(f"- {lesson}" for lesson in lessons) + "\n</reflection_takeaways>"


@pytest.mark.parametrize(
    ("lessons", "scope"),
    [
        ((), 0.0),
        # A lesson of two key terms is none; one of three is half of what two would be.
        (("compare archives",), 0.0),
        (("compare dated archives",), 0.5),
        (("compare dated archives", "quote measured widths"), 1.0),
        # The same lesson twice: half of the terms are distinct.
        (("compare dated archives", "compare dated archives"), 0.5),
        # A third of each lesson's terms is the question's: two thirds are portable.
        (("compare dated barges", "quote measured amber"), 2 / 3),
    ],
)
def test_the_scope_is_what_lessons_share_neither_with_each_other_nor_with_the_question(lessons, scope):
    assert score_of(takeaways(*lessons)).outcome.scope == pytest.approx(scope)


def test_generic_advice_takes_a_sixth_of_the_scope_for_each_phrase():
    plain = takeaways("compare dated archives", "quote measured widths")
    assert score_of(f"be thorough {plain}").outcome.scope == pytest.approx(1 - 1 / 6)
    assert score_of("be thorough, be careful, be specific, do better " + plain).outcome.scope == pytest.approx(0.5)


def test_the_diagnosis_is_the_share_of_lost_rubrics_that_are_named():
    first, second = rubric("cites dated sources"), rubric("states measured width")
    assert score_of("It never cites dated sources.", first, second).outcome.diagnosis == 0.5
    assert score_of("Nothing of it.", first, second).outcome.diagnosis == 0.0
    assert "names 1 of 2 faults (cites dated sources)" in score_of("cites dated sources", first, second).justification
