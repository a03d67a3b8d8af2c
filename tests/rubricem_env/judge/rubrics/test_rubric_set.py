"""The rubrics of one question."""

import pytest
from hypothesis import given, strategies as st

from rubricem_env.domain.base import STAGES, Stage
from rubricem_env.domain.stage_set import DEEP_RESEARCH
from rubricem_env.judge.rubrics.rubric_set import RubricSet
from tests.fakes import rubric

CAPS = DEEP_RESEARCH.caps


def proposed(*texts, step=1, stage=Stage.ANSWER, **kinds):
    return RubricSet().with_proposed([rubric(text, stage, **kinds) for text in texts], step=step)


def prune(rubrics, scores, step=1, archive_limit=50):
    by_id = {rubric(text).id: values for text, values in scores.items()}
    return rubrics.pruned(by_id, caps=CAPS, step=step, archive_limit=archive_limit)


def titles(entries):
    return [entry.rubric.title for entry in entries]


def test_flat_rubrics_below_the_cap_stay_by_choice_and_are_the_first_that_a_cap_cuts():
    def keep_flat(rubrics, scores, step):
        by_id = {rubric(text, Stage.RESEARCH).id: values for text, values in scores.items()}
        return rubrics.pruned(by_id, caps=CAPS, step=step, archive_limit=50, retires_flat=False)

    kept = keep_flat(proposed("a", "b", stage=Stage.RESEARCH), {"a": [1, 1], "b": [2, 2]}, step=1)
    assert (titles(kept.active), kept.archive) == (["a", "b"], ())
    # Research keeps 2. Of the flat ones the later proposed stays.
    grown = kept.with_proposed([rubric(text, Stage.RESEARCH) for text in "bc"], step=2)
    cut = keep_flat(grown, {"a": [1, 1], "b": [1, 1], "c": [0, 2]}, step=2)
    assert titles(cut.active) == ["b", "c"]
    assert [(entry.last.rubric.title, entry.reason) for entry in cut.archive] == [("a", "over_cap")]


def test_buffer_drops_the_rubric_on_which_all_rollouts_agree_first():
    kept = prune(proposed("a", "b"), {"a": [1, 1, 1], "b": [0, 1, 2]})
    assert titles(kept.active) == ["b"]
    assert kept.archive[0].reason == "separates_nothing"


def test_beyond_the_cap_the_lowest_variance_goes():
    # variances: a 1, b 0.25, c 2/9 = 0.22, d 2/3; the answer keeps three
    kept = prune(proposed("a", "b", "c", "d"), {"a": [0, 2], "b": [0, 1], "c": [1, 1, 2], "d": [0, 1, 2]})
    assert titles(kept.active) == ["a", "b", "d"]
    assert (kept.archive[0].last.rubric.title, kept.archive[0].reason) == ("c", "over_cap")


def test_equal_variances_are_ordered_by_weight_then_by_age_then_by_id():
    old = RubricSet().with_proposed([rubric("old")], step=1)
    both = old.with_proposed([rubric("heavy", weight=3), rubric("new"), rubric("other")], step=2)
    kept = prune(both, {text: [0, 2] for text in ("old", "heavy", "new", "other")}, step=2)
    assert set(titles(kept.active)) == {"heavy", "new", "other"}


def test_fewer_than_two_scores_leave_a_rubric_in_use_with_its_last_variance():
    kept = prune(proposed("a", "b"), {"a": [1]})
    assert [(entry.rubric.title, entry.variance) for entry in kept.active] == [("a", None), ("b", None)]
    measured = prune(proposed("a"), {"a": [0, 2]})
    assert prune(measured, {}, step=2).active[0].variance == 1.0


def test_a_retired_rubric_comes_back_with_its_birthday():
    retired = prune(proposed("a"), {"a": [1, 1]})
    back = retired.with_proposed([rubric("a")], step=7)
    assert (back.active[0].created_step, back.active[0].last_step, back.archive) == (1, 7, ())


def test_a_proposal_that_repeats_or_mirrors_is_left_out():
    known = RubricSet().with_persistent([rubric("p", persistent=True)]).with_proposed([rubric("a")], step=1)
    again = known.with_proposed([rubric(" A "), rubric("a", negative=True), rubric("P")], step=2)
    assert titles(again.active) == ["a"]
    assert again.active[0].last_step == 2


def test_the_archive_keeps_the_newest():
    kept = prune(proposed("a", "b"), {"a": [1, 1], "b": [2, 2]}, archive_limit=1)
    assert [gone.last.rubric.title for gone in kept.archive] == ["b"]


MARKS = st.dictionaries(st.integers(0, 30), st.lists(st.integers(0, 2), max_size=8), max_size=30)


@pytest.mark.no_cover
@given(st.lists(MARKS, max_size=5))
def test_caps_hold_after_every_step_and_a_rubric_is_in_one_place_only(steps):
    rubrics = RubricSet()
    for step, scores in enumerate(steps):
        named = {rubric(str(number), STAGES[number % 4]): values for number, values in scores.items()}
        rubrics = rubrics.with_proposed(named, step=step).pruned(
            {r.id: values for r, values in named.items()}, caps=CAPS, step=step, archive_limit=10
        )
        active = [entry.rubric for entry in rubrics.active]
        assert all(sum(r.stage == stage for r in active) <= CAPS[stage] for stage in STAGES)
        ids = [r.id for r in active] + [gone.last.rubric.id for gone in rubrics.archive]
        assert len(ids) == len(set(ids))


@given(st.permutations(list(range(8))))
def test_the_order_of_rollouts_and_proposals_does_not_change_who_stays(order):
    scores = {str(number): [number % 3, 1, 0] for number in range(8)}
    rubrics = RubricSet().with_proposed([rubric(str(number)) for number in order], step=1)
    kept = prune(rubrics, {text: values[::-1] for text, values in scores.items()})
    expected = prune(proposed(*map(str, range(8))), scores)
    assert {e.rubric.id for e in kept.active} == {e.rubric.id for e in expected.active}
