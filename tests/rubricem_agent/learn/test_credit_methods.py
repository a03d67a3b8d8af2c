"""The rivals of SS-GRPO against vectors worked by hand, the laws that all methods keep, and scores that failed."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from rubricem_agent.learn.credit import CreditSettings, assign_credit, count_tokens, credit_judged, turn_ids
from rubricem_agent.learn.credit_methods import METHODS
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_env.domain.judgement import Judgement, StageScore, Unscored

BEST, WORST = [1.0, 0.0, 0.0, 1.0], [0.0] * 4
STAGE_IDS = np.array([[-1, 0, 0, 1, 1, -1, 2, 3], [-1, 0, 0, 1, 1, -1, 2, 3]])
"""Two turns: a plan of two tokens and a search of two; after the tool's token a review and an answer of one each."""


def test_dr_grpo_is_the_answers_distance_from_the_mean():
    # answers 0.25 and 0.75, mean 0.5
    credit = assign_credit([[1, 1, 1, 0.25], [0, 0, 0, 0.75]], mode="dr_grpo")
    assert credit.advantages.tolist() == [[-0.25] * 4, [0.25] * 4]
    assert credit.returns.tolist() == [[0.25] * 4, [0.75] * 4]


def test_gdpo_gives_a_group_that_differs_in_two_stages_twice_the_advantage_of_one_that_differs_in_one():
    # z = +-0.5 / sqrt(0.5) = +-0.7071 a stage; sums +-1.4142 and +-0.7071; spread sqrt((2 * 2 + 2 * 0.5) / 3) = 1.2910
    credit = assign_credit([BEST, WORST, [1, 0, 0, 0], WORST], groups=[0, 0, 1, 1], mode="gdpo")
    np.testing.assert_allclose(credit.advantages[:, 0], [1.0954, -1.0954, 0.5477, -0.5477], atol=5e-4)
    assert (credit.advantages == credit.advantages[:, :1]).all()  # nothing is localised


def test_gdpo_cancels_where_the_scores_have_a_constant_sum():
    assert not assign_credit([[1, 0, 0, 0], [0, 0, 0, 1]], mode="gdpo").advantages.any()


def test_srar_adds_the_stages_own_z_to_the_answers():
    # plan z 0.7071, answer z 0.7071 (n - 1): plan and answer 1.4142; research and review have the answer's alone
    advantages = assign_credit([BEST, WORST], mode="srar").advantages
    np.testing.assert_allclose(advantages[0], [2**0.5, 0.5**0.5, 0.5**0.5, 2**0.5], atol=1e-5)
    assert advantages[1] == pytest.approx(-advantages[0])


def test_draco_redistributes_a_rollouts_advantage_by_the_quality_of_its_stages():
    # A = 1, Q = (0.5, 1), n = (2, 4): 6 * 0.5 / (2 * 1.5) = 1 and 6 * 1 / (4 * 1.5) = 1
    # A = -1, w = 1 - 0: -6 / (2 * 2) = -1.5 and -6 / (4 * 2) = -0.75
    tokens = [[[2, 4, 0, 0]]] * 2
    advantages = assign_credit([[0.5, 1, 0, 0], WORST], mode="draco", tokens=tokens).advantages
    np.testing.assert_allclose(advantages, [[1, 1, 0, 0], [-1.5, -0.75, 0, 0]], atol=1e-6)


def test_draco_takes_most_from_the_stage_of_least_quality():
    # A = -1, w = 1 - Q = (0.5, 0.75), n = (2, 4): -6 * 0.5 / (2 * 1.25) = -1.2 and -6 * 0.75 / (4 * 1.25) = -0.9
    advantages = assign_credit([BEST, [0.5, 0.25, 0, 0]], mode="draco", tokens=[[[2, 4, 0, 0]]] * 2).advantages
    np.testing.assert_allclose(advantages[1], [-1.2, -0.9, 0, 0], atol=1e-6)


def test_draco_is_uniform_where_no_stage_deserves_a_share():
    # the better rollout has Q = 0 in the only stage it wrote: the weights sum to 0
    advantages = assign_credit([BEST, WORST], mode="draco", tokens=[[[0, 3, 0, 0]]] * 2).advantages
    np.testing.assert_allclose(advantages[0], [1, 1, 1, 1], atol=1e-6)


def test_draco_gives_a_lost_stage_the_mean_quality_of_the_others():
    scores, tokens = [[0.6, 0.8, 0.2, 0.9], [0, 0.8, 0.4, 0.9], WORST], [[[2, 2, 2, 2]]] * 3
    scored = [[True] * 4, [False, True, True, True], [True] * 4]
    advantages = assign_credit(scores, mode="draco", tokens=tokens, scored=scored).advantages
    # all stages have two tokens, so advantages go as Q: the plan's is (0.8 + 0.4 + 0.9) / 3 = 0.7, the answer's 0.9
    assert advantages[1, 0] / advantages[1, 3] == pytest.approx(0.7 / 0.9)


@given(st.data())
@settings(max_examples=50)
def test_draco_keeps_the_sum_over_tokens_and_never_flips_a_sign(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    tokens = rng.integers(0, 9, (5, 3, 4))
    written = tokens.sum(1)
    scores = np.where(written > 0, rng.random((5, 4)), 0.0)
    advantages = assign_credit(scores, mode="draco", tokens=tokens).advantages
    overall = assign_credit(np.repeat(scores.mean(1, keepdims=True), 4, 1), mode="answer_only").advantages[:, 0]
    np.testing.assert_allclose((written * advantages).sum(1), overall * written.sum(1), atol=1e-6)
    assert (advantages * overall[:, None] >= 0).all()


def test_igpo_discounts_the_gains_of_turns_after_normalising_them():
    # gains 0.5 and 0.1: z +-1; answers 1 and 0: z +-1. The first turn has 1 + 0.95 * 1
    tokens = count_tokens(STAGE_IDS)
    credit = assign_credit([BEST, WORST], mode="igpo", tokens=tokens, gains=[[0.5, np.nan], [0.1, np.nan]])
    np.testing.assert_allclose(credit.turns, [[1.95, 1], [-1.95, -1]], atol=1e-4)
    np.testing.assert_allclose(credit.advantages[0], [1.95, 1.95, 1, 1], atol=1e-4)
    np.testing.assert_allclose(credit.spread(STAGE_IDS)[0], [0, 1.95, 1.95, 1.95, 1.95, 0, 1, 1], atol=1e-4)


def test_turns_begin_again_after_each_text_of_a_tool():
    assert turn_ids(STAGE_IDS)[0].tolist() == [-1, 0, 0, 0, 0, -1, 1, 1]
    assert count_tokens(STAGE_IDS)[0].tolist() == [[2, 2, 0, 0], [0, 0, 1, 1]]


def credited(mode, scores, tokens, gains, **more):
    return assign_credit(scores, mode=mode, tokens=tokens, gains=gains, **more)


@pytest.mark.parametrize("mode", METHODS)
def test_all_methods_ignore_masked_rows_and_the_order_of_rows_and_give_0_to_equal_and_lone_rollouts(mode):
    rng = np.random.default_rng(5)
    scores, tokens, gains = rng.random((9, 4)), rng.integers(1, 9, (9, 3, 4)), rng.normal(size=(9, 3))
    groups, valid = np.repeat([0, 1, 2], 3), np.array([True, True, False] * 2 + [False, False, True])
    whole = credited(mode, scores, tokens, gains, groups=groups, valid=valid).advantages
    assert whole[0].all()
    assert not whole[~valid].any()
    assert not whole[8].any()
    shown = np.flatnonzero(valid)
    fewer = credited(mode, scores[shown], tokens[shown], gains[shown], groups=groups[shown]).advantages
    np.testing.assert_allclose(fewer, whole[shown], atol=1e-12)
    order = rng.permutation(9)
    mixed = credited(mode, scores[order], tokens[order], gains[order], groups=groups[order], valid=valid[order])
    np.testing.assert_allclose(mixed.advantages, whole[order], atol=1e-12)
    alike = credited(mode, np.full((4, 4), 0.3), np.ones((4, 2, 4)).astype(int), np.full((4, 2), 0.1))
    assert not alike.advantages.any()
    assert not alike.trainable.any()


def test_a_method_says_what_it_lacks():
    with pytest.raises(UsageError, match="credit draco shares by tokens"):
        assign_credit([BEST, WORST], mode="draco")
    with pytest.raises(UsageError, match="credit igpo needs the rise of the gold answer's probability"):
        assign_credit([BEST, WORST], mode="igpo", tokens=[[[1, 1, 1, 1]]] * 2)
    with pytest.raises(UsageError, match="do not fit 2 x 4 scores"):
        assign_credit([BEST, WORST], mode="draco", tokens=[[1, 1, 1, 1]] * 2)
    with pytest.raises(UsageError, match=r"the credit method is 'grpo'; it is one of stages, answer_only"):
        assign_credit([BEST, WORST], mode="grpo")
    with pytest.raises(UsageError, match="scored needs true or false for each of the 2 x 4 scores"):
        assign_credit([BEST, WORST], scored=[[True] * 4])


# Scores that failed.


def test_a_lost_score_is_0_at_its_stage_and_the_groups_mean_in_the_returns():
    # plans 1, 0, lost; answers 1, 0, 0.5. Plan returns 1.8 and 0: +-1. The lost one returns 0.5 + 0.8 * 0.5 = 0.9
    scored = [[True] * 4, [True] * 4, [False, False, False, True]]
    credit = assign_credit([BEST, WORST, [0, 0, 0, 0.5]], scored=scored)
    np.testing.assert_allclose(credit.advantages[:, 0], [1, -1, 0], atol=1e-6)
    np.testing.assert_allclose(credit.advantages[:, 3], [1.5**0.5, -(1.5**0.5), 0], atol=1e-6)
    assert credit.returns[2, 0] == pytest.approx(0.9)
    assert credit.filled.tolist() == [[False] * 4, [False] * 4, [True, True, True, False]]


def test_a_stage_that_was_scored_in_one_rollout_alone_teaches_nothing():
    scored = [[True] * 4, [False, True, True, True], [False, True, True, True]]
    assert not assign_credit([BEST, WORST, WORST], scored=scored).advantages[:, 0].any()


def judgement_of(scores, *, fails=False):
    lost = Unscored(reason="judge_failed")
    outcomes = [StageScore(score=score) for score in scores]
    return Judgement.of(dict(zip(STAGES, [lost] * 3 + outcomes[3:] if fails else outcomes, strict=True)))


@pytest.mark.parametrize("mode", [mode for mode in METHODS if mode != "igpo"])
def test_one_failure_among_equally_good_rollouts_is_no_reward_by_any_method(mode):
    equal = [judgement_of((0.9, 0.8, 0.7, 0.3), fails=number == 0) for number in range(8)]
    given = {"groups": [0] * 8, "valid": [True] * 8, "stage_ids": STAGE_IDS[[0] * 8]}
    assert not credit_judged(equal, **given, settings=CreditSettings(credit=mode)).advantages.any()


def test_the_papers_wording_makes_the_failure_a_reward_where_stage_means_differ():
    # plan returns 2.08 of seven and 0.3 * 2.8 = 0.84 of the one: (0.84 - 1.925) / 0.41 = -2.65
    equal = [judgement_of((0.9, 0.8, 0.7, 0.3), fails=number == 0) for number in range(8)]
    given = {"groups": [0] * 8, "valid": [True] * 8, "stage_ids": STAGE_IDS[[0] * 8]}
    credit = credit_judged(equal, **given, settings=CreditSettings(fallback="broadcast"))
    assert credit.advantages[0, 0] == pytest.approx(-(7**0.5))
    assert not credit.filled.any()


@given(st.lists(st.lists(st.floats(0, 1, width=32), min_size=4, max_size=4), min_size=3, max_size=8))
@settings(max_examples=60)
def test_a_failure_of_one_rollout_changes_nobodys_expected_advantage_but_by_one_factor(scores):
    """Over which other rollout fails, G - mean is on average n(n - 2) / (n - 1)^2 of what it is without a failure.

    Removing i leaves (S - G_i) / (n - 1) as the mean; averaged over i != m that is ((n - 2) S + G_m) / (n - 1)^2. So no
    expected sign changes. The answers' advantages do not change at all.
    """
    n = len(scores)
    whole = assign_credit(scores)
    centred = np.zeros((n, 4))
    for lost in range(n):
        scored = np.ones((n, 4), dtype=bool)
        scored[lost, :3] = False
        credit = assign_credit(scores, scored=scored)
        others = np.arange(n) != lost
        np.testing.assert_array_equal(credit.advantages[:, 3], whole.advantages[:, 3])
        assert not credit.advantages[lost, :3].any()
        np.testing.assert_array_equal(credit.returns[others], whole.returns[others])
        centred[others] += credit.advantages[others] * (credit.returns[others].std(axis=0) + 1e-8) / (n - 1)
    expected = n * (n - 2) / (n - 1) ** 2 * (whole.returns - whole.returns.mean(axis=0))
    np.testing.assert_allclose(centred[:, :3], expected[:, :3], atol=1e-5)


def test_a_matrix_that_breaks_a_rule_is_refused_in_every_config():
    assert CreditSettings(matrix=tuple(map(tuple, np.eye(4)))).matrix[0] == (1.0, 0.0, 0.0, 0.0)
    with pytest.raises(ConfigError, match="the diagonal must be 1"):
        CreditSettings(matrix=((0.0,) * 4,) * 4)


def test_a_stages_advantage_is_spread_over_the_tokens_of_that_stage():
    # z = +-0.5 / 0.5 = +-1; the plan's two tokens have it, the other stages did not differ.
    credit = assign_credit([[1, 0, 0, 0], WORST], matrix=np.eye(4))
    np.testing.assert_allclose(credit.spread(STAGE_IDS)[0], [0, 1, 1, 0, 0, 0, 0, 0], atol=1e-4)
