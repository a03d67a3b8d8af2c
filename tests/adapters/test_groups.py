"""Groups in a batch, and tokens that are no longer the policy's."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from rubricem_agent.adapters.credit import group_advantages, stage_advantages
from rubricem_agent.learn.credit import assign_credit
from rubricem_agent.rollout.tokens import RolloutTokens
from rubricem_env.adapters.session import (
    AdapterWarning,
    JudgedRows,
    group_by_query,
    pad_stage_ids,
    refuse_retokenised,
)
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.judgement import Judgement, StageScore, Unscored, UnscoredReason

FULL = Judgement.of({stage: StageScore(score=1.0) for stage in STAGES})
EMPTY = Judgement.of({stage: StageScore(score=0.0) for stage in STAGES})
LOST = Judgement.of({stage: Unscored(reason=UnscoredReason.JUDGE_FAILED) for stage in STAGES})


def test_places_of_a_question_belong_together_wherever_they_stand():
    assert group_by_query(["a", "b", "a", "b"], 2) == [[0, 2], [1, 3]]


def test_whole_groups_are_silent_also_where_a_question_comes_twice():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        group_by_query(["a"] * 4 + ["b"] * 2, 2)


def test_a_group_cut_short_is_said_with_the_way_out():
    with pytest.warns(AdapterWarning, match=r"1 of 2 groups are incomplete: the first has 1 attempts instead of 2"):
        group_by_query(["a", "a", "b"], 2)


def test_rows_are_padded_with_no_stage():
    assert pad_stage_ids([[0, 1], [2]]).tolist() == [[0, 1], [2, -1]]
    assert pad_stage_ids([]).shape == (0, 0)


@pytest.mark.parametrize(("held", "place"), [([1, 9, 3], 1), ([1, 2], 2), ([1, 2, 3, 4], 3)])
def test_other_tokens_are_found_with_row_and_place(held, place):
    with pytest.raises(UsageError, match=rf"X holds other tokens .* row 1 differs from token {place} on"):
        refuse_retokenised([[5], [1, 2, 3]], [[5], held], trainer="X")


def test_the_same_tokens_pass():
    refuse_retokenised([[1, 2]], [[1, 2]], trainer="X")


def rows(judgements, *, valid=None, groups=None):
    count = len(judgements)
    stage_ids = pad_stage_ids([[-1, 0, 1, 2, 3]] * count)
    return JudgedRows(tuple(judgements), tuple(groups or [0] * count), tuple(valid or [True] * count), stage_ids)


def test_stage_advantages_are_the_agents_credit_token_by_token():
    # Returns (2.8, 2.2, 1.8, 1.0) against zeros: each stage is one deviation above and below its mean.
    advantages = stage_advantages(rows([FULL, EMPTY]))
    assert advantages.tolist() == [[0, *[pytest.approx(1.0)] * 4], [0, *[pytest.approx(-1.0)] * 4]]
    assert advantages[:, 1:] == pytest.approx(assign_credit([[1.0] * 4, [0.0] * 4]).advantages)


def test_a_rollout_that_the_infrastructure_ended_or_no_judge_scored_earns_nothing_and_counts_for_nothing():
    whole = stage_advantages(rows([FULL, EMPTY]))
    for lost in (rows([FULL, EMPTY, FULL], valid=[True, True, False]), rows([FULL, EMPTY, LOST])):
        assert stage_advantages(lost).tolist() == [*whole.tolist(), [0.0] * 5]


def test_groups_are_normalised_each_by_itself():
    both = stage_advantages(rows([FULL, FULL, EMPTY, EMPTY], groups=[0, 1, 0, 1]))
    assert np.sign(both[:, 1]).tolist() == [1, 1, -1, -1]


def test_the_attempts_at_one_question_are_credited_each_at_its_own_length():
    def attempt(stage_ids):
        ids = tuple(range(len(stage_ids)))
        tokens = RolloutTokens(ids=ids, stage_ids=stage_ids, logprobs=(0.0,) * len(ids), prompt_length=1)
        return SimpleNamespace(tokens=tokens, is_valid=True)

    rows = group_advantages([attempt((-1, 0, -1, 3)), attempt((-1, 0))], [FULL, EMPTY])
    assert rows == [[pytest.approx(1.0), 0.0, pytest.approx(1.0)], [pytest.approx(-1.0)]]
