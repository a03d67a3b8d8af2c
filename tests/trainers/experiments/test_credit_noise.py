"""Stage credit and terminal broadcast against the oracle, on groups small enough to work out by hand."""

import numpy as np
import pytest

from rubricem_env.domain.base import Stage
from rubricem_env.domain.errors import UsageError
from rubricem_env.env.research_env import shipped_toolbox
from rubricem_env.world.almanac import load_questions, shipped_questions_path
from trainers.experiments.credit_noise import (
    DECIDING_STAGES,
    ScoredGroup,
    compare_estimators,
    play_groups,
    stage_scores,
    turnover,
)

DRAWN = {"chance": 0.5, "seed": 0}


@pytest.fixture
def group() -> ScoredGroup:
    """Two rollouts, one planning fault: the faulty one loses the plan's, the review's and the answer's criterion."""
    return ScoredGroup(
        faults=np.array([[False], [True]]),
        marks=np.array([[2, 2, 2, 2], [0, 2, 0, 0]], dtype=np.int8),
        weights=np.ones(4),
        is_flaw=np.zeros(4, dtype=bool),
        stages=np.arange(4, dtype=np.int8),
    )


def test_too_few_rollouts_to_measure_by_are_refused_with_the_way_out(group):
    same = group._replace(faults=np.array([[False], [False]]))
    with pytest.raises(UsageError, match=r"the faults of plan change no score .* raise --rollouts or --questions"):
        compare_estimators([same], [Stage.PLAN], kind="flip", noises=(0.0,), **DRAWN)


def test_scores_are_weighted_shares_with_flaws_inverted(group):
    flawed = group._replace(is_flaw=np.array([True, False, False, False]))
    assert stage_scores(group, group.marks).tolist() == [[1, 1, 1, 1], [0, 1, 0, 0]]
    assert stage_scores(flawed, flawed.marks)[:, 0].tolist() == [0, 1]


def test_a_true_judge_makes_stage_credit_exact_and_terminal_credit_short_of_the_omitted_signal(group):
    level = compare_estimators([group], [Stage.PLAN], kind="shift", noises=(0.0,), **DRAWN)[0]
    # E[gamma Y] is -1/4 for plan, review and answer and 0 for research, so
    # oracle = -(1 + 0.6 + 0.8)/4 = -0.6, terminal = -0.25, and |-0.25 + 0.6| / 0.6 = 7/12
    assert level.stage_error["plan"] == pytest.approx(0.0)
    assert level.terminal_error["plan"] == pytest.approx(7 / 12)
    assert level.terminal_angle["plan"] == pytest.approx(0.0)
    assert turnover([level], Stage.PLAN) is None


def test_a_judge_that_turns_every_intermediate_mark_round_hands_the_lead_to_terminal_credit(group):
    levels = compare_estimators([group], [Stage.PLAN], kind="flip", noises=(0.0, 1.0), intermediate_only=True, **DRAWN)
    # stages: +1/4 (1 + 0.6) - 0.8/4 = +0.2 against -0.6: an error of 0.8/0.6; the answer's marks stay true
    assert levels[1].stage_error["plan"] == pytest.approx(4 / 3)
    assert levels[1].terminal_error["plan"] == pytest.approx(7 / 12)
    assert levels[1].stage_angle["plan"] == pytest.approx(2.0)
    assert turnover(levels, Stage.PLAN) == 1.0


def test_full_shift_noise_leaves_no_signal(group):
    level = compare_estimators([group], [Stage.PLAN], kind="shift", noises=(1.0,), **DRAWN)[0]
    # every mark of 0 or 2 becomes 1: the estimate is 0, as far from the oracle as the oracle is long
    assert level.stage_error["plan"] == pytest.approx(1.0)
    assert level.stage_angle["plan"] == pytest.approx(1.0)


def test_played_groups_carry_the_drawn_faults_and_true_marks():
    questions = [question for question in load_questions(shipped_questions_path()) if question.split == "train"][:2]
    done = []
    groups = play_groups(questions, shipped_toolbox(), rollouts=4, chance=0.5, seed=1, progress=done.append)
    assert [group.faults.shape for group in groups] == [(4, len(DECIDING_STAGES))] * 2
    assert groups[0].marks.shape[1] == len(groups[0].weights)
    assert done == [1, 2]
    again = play_groups(questions, shipped_toolbox(), rollouts=4, chance=0.5, seed=1)
    assert np.array_equal(groups[1].marks, again[1].marks)
