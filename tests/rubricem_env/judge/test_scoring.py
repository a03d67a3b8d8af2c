"""The arithmetic of stage scores, worked out by hand."""

import pytest
from hypothesis import given, strategies as st

from rubricem_env.domain.base import Stage
from rubricem_env.domain.judgement import MAX_JUSTIFICATION_CHARS, RubricScore, StageScore, Unscored
from rubricem_env.judge.rubrics.separation import score_variance
from rubricem_env.judge.scoring import score_stage, score_trajectory
from tests.fakes import rubric


def rubric_scores(**scores):
    return {rubric(name).id: RubricScore.whole(rubric(name).id, score, "because") for name, score in scores.items()}


def test_the_score_is_the_weighted_mean_of_scores_over_two():
    scored = score_stage([rubric("a", weight=3), rubric("b", weight=1)], rubric_scores(a=2, b=1))
    # (3 x 1.0 + 1 x 0.5) / 4 = 0.875
    assert scored.score == 0.875


def test_a_flaw_that_is_avoided_counts_as_full_and_one_that_is_there_as_nothing():
    flaw, quality = rubric("f", weight=2, negative=True), rubric("q", weight=1)
    by_id = {flaw.id: RubricScore.whole(flaw.id, 0, ""), quality.id: RubricScore.whole(quality.id, 0, "")}
    # (2 x (1 - 0/2) + 1 x 0) / 3 = 2/3
    assert score_stage([flaw, quality], by_id).score == pytest.approx(2 / 3)
    by_id[flaw.id] = RubricScore.whole(flaw.id, 2, "")
    assert score_stage([flaw, quality], by_id).score == 0.0


def test_a_half_score_on_a_fractional_weight_of_the_data_set_is_kept():
    # (0.5 x 0.5 + 2.5 x 1.0) / 3.0 = 2.75 / 3
    scored = score_stage([rubric("a", weight=0.5), rubric("b", weight=2.5)], rubric_scores(a=1, b=2))
    assert scored.score == pytest.approx(2.75 / 3)


def test_rubrics_without_a_score_are_left_out_of_the_mean():
    # only a: 1/2
    assert score_stage([rubric("a"), rubric("b", weight=3)], rubric_scores(a=1)).score == 0.5


def test_a_stage_of_which_a_failure_left_rubrics_unscored_has_no_score():
    part = score_stage([rubric("a"), rubric("b", weight=3)], rubric_scores(a=1), failure="1 of 2 came back")
    assert part == Unscored(reason="judge_failed", detail="1 of 2 came back")


def test_no_rubric_and_no_score_are_two_different_absences():
    assert score_stage([], {}) == Unscored(reason="no_rubric")
    failed = score_stage([rubric("a")], {}, failure="down")
    assert failed == Unscored(reason="judge_failed", detail="down")


def test_missing_review_scores_zero_even_when_every_negative_rubric_is_avoided():
    flaw = rubric("f", Stage.REVIEW, negative=True)
    judged = score_trajectory([Stage.PLAN], [flaw], rubric_scores={flaw.id: RubricScore.whole(flaw.id, 0, "")})
    assert judged.outcome("review") == StageScore(score=0.0, missing=True)
    assert judged.outcome("plan") == Unscored(reason="no_rubric")


def test_variance_is_exactly_zero_where_all_agree_and_by_hand_elsewhere():
    assert score_variance([1 / 3] * 7) == 0.0
    # mean 1, ((0-1)^2 + (2-1)^2) / 2 = 1
    assert score_variance([0, 2]) == 1.0
    assert score_variance([]) == 0.0


def test_a_justification_is_cut_to_a_length_that_can_be_kept():
    assert len(RubricScore.whole("r", 1, "x" * 10_000).justification) == MAX_JUSTIFICATION_CHARS


@given(st.lists(st.tuples(st.floats(0.01, 1e6), st.integers(0, 2), st.booleans()), min_size=1, max_size=12))
def test_any_weights_and_rubric_scores_give_a_score_between_zero_and_one_in_any_order(rows):
    rubrics = [rubric(str(place), weight=weight, negative=flaw) for place, (weight, _, flaw) in enumerate(rows)]
    by_id = {r.id: RubricScore.whole(r.id, score, "") for r, (_, score, _) in zip(rubrics, rows, strict=True)}
    scored = score_stage(rubrics, by_id)
    assert 0.0 <= scored.score <= 1.0
    assert score_stage(rubrics[::-1], by_id).score == scored.score
