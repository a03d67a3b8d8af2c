"""What becomes of missing, unscorable and failed stages."""

import pytest

from rubricem_agent.learn.credit import assign_credit
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.judgement import Judgement, StageScore, Unscored
from rubricem_env.judge.masking import group_scores

MISSING = StageScore(score=0.0, missing=True)
NO_RUBRIC = Unscored(reason="no_rubric")
FAILED = Unscored(reason="judge_failed")
NOT_ASKED = Unscored(reason="not_asked")


def judged(*outcomes: float | StageScore | Unscored) -> Judgement:
    made = [StageScore(score=outcome) if isinstance(outcome, float) else outcome for outcome in outcomes]
    return Judgement.of(dict(zip(STAGES, made, strict=True)))


def test_a_missing_review_counts_as_zero_and_stays_in_the_baseline():
    scores, valid, _scored = group_scores([judged(1.0, 1.0, 1.0, 1.0), judged(1.0, 1.0, MISSING, 1.0)])
    assert scores[:, 2].tolist() == [1.0, 0.0]
    assert valid.all()
    # G review: 1.8 and 0.8; mean 1.3, std 0.5
    assert assign_credit(scores).advantages[:, 2] == pytest.approx([1, -1])


def test_a_stage_without_rubrics_is_zero_for_the_whole_group_and_drops_out():
    scores, valid, _scored = group_scores([judged(1.0, NO_RUBRIC, 1.0, 1.0), judged(1.0, 0.5, 1.0, 1.0)])
    assert scores[:, 1].tolist() == [0.0, 0.0]
    assert not assign_credit(scores, valid=valid).advantages.any()


def test_failed_stages_are_flagged_where_the_answer_was_scored_and_missing_ones_are_not():
    scores, valid, scored = group_scores([judged(FAILED, FAILED, MISSING, 0.75)])
    assert scores.tolist() == [[0.0, 0.0, 0.0, 0.75]]
    assert scored.tolist() == [[False, False, True, True]]
    assert valid.tolist() == [True]


def test_the_papers_fallback_puts_the_answers_score_into_failed_stages_but_not_into_missing_ones():
    scores, valid, scored = group_scores([judged(FAILED, FAILED, MISSING, 0.75)], "broadcast")
    assert scores.tolist() == [[0.75, 0.75, 0.0, 0.75]]
    assert valid.all()
    assert scored.all()


@pytest.mark.parametrize("answer", [FAILED, NO_RUBRIC])
def test_a_rollout_with_nothing_to_fall_back_on_is_masked(answer):
    _, valid, _ = group_scores([judged(FAILED, 1.0, 1.0, answer), judged(1.0, 1.0, 1.0, 1.0)])
    assert valid.tolist() == [False, True]


@pytest.mark.parametrize("outcomes", [(FAILED, FAILED, MISSING, MISSING), (0.9, FAILED, MISSING, MISSING)])
def test_the_zero_of_an_answer_that_never_came_stands_in_for_nothing(outcomes):
    scores, valid, _scored = group_scores([judged(*outcomes), judged(1.0, 1.0, 1.0, 1.0), judged(0.5, 0.5, 0.5, 0.5)])
    assert valid.tolist() == [False, True, True]
    assert assign_credit(scores, valid=valid).advantages[0].tolist() == [0.0, 0.0, 0.0, 0.0]


def test_no_rubric_earns_credit_where_one_rollout_was_judged_by_its_answer_and_another_lacks_the_stage():
    scores, _, scored = group_scores([judged(NO_RUBRIC, FAILED, FAILED, 0.8), judged(MISSING, 0.5, 0.5, 0.5)])
    assert scores.tolist() == [[0.0, 0.0, 0.0, 0.8], [0.0, 0.5, 0.5, 0.5]]
    assert scored.tolist() == [[True, False, False, True], [True] * 4]


def test_a_stage_that_nobody_asked_for_drops_out():
    scores, _, _ = group_scores([judged(NOT_ASKED, NOT_ASKED, NOT_ASKED, 0.5)])
    assert scores.tolist() == [[0.0, 0.0, 0.0, 0.5]]


def test_a_group_that_was_never_judged_is_refused():
    with pytest.raises(UsageError, match="rollout 2 of 2 has no answer score because none was requested"):
        group_scores([judged(1.0, 1.0, 1.0, 1.0), Judgement.of({})])


def test_no_rollouts_are_no_scores():
    assert group_scores([])[0].shape == (0, 4)
