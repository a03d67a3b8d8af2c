"""The samples of a step: another opening, and a matched scale."""

import numpy as np
import pytest
import torch

from rubricem_agent.learn.samples import Sample
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.trajectory import Trajectory
from rubricem_records.rollouts.rollout_tokens import RolloutTokens
from rubricem_records.rollouts.rollouts import Rollout
from trainers.local.crediting import match_scale, reopen
from trainers.local.learner import PolicyTokens, importance_weights

STAGE_IDS = (-1, 0, 0, -1, 1, -1, -1, 2, 3)
"""A prompt token, a turn of two, a tool's token, a turn of one, two of a tool, a last turn of two."""


def rollout(ids: tuple[int, ...], stage_ids: tuple[int, ...] = STAGE_IDS) -> Rollout:
    tokens = RolloutTokens(ids=ids, stage_ids=stage_ids, logprobs=(0.0,) * len(ids), prompt_length=1)
    return Rollout(trajectory=Trajectory(question="q", segments=()), policy="p", tokens=tokens)


def test_an_attempt_is_trained_on_after_another_opening_with_what_was_sampled_after_its_own():
    tokens = RolloutTokens(
        ids=(9, 9, 1, 8, 3), stage_ids=(-1, -1, 0, -1, 3), logprobs=(0, 0, -1, 0, -3), prompt_length=2
    )
    moved = reopen(rollout((9,), (-1,)).model_copy(update={"tokens": tokens}), (5, 6, 7)).tokens
    assert moved.ids == (5, 6, 7, 1, 8, 3)
    assert moved.stage_ids == (-1, -1, -1, 0, -1, 3)
    assert moved.logprobs == (0, 0, 0, -1, 0, -3)
    assert moved.prompt_length == 3


def folded(*ids: int) -> Rollout:
    """Two windows of four tokens, each after an opening of two."""
    tokens = RolloutTokens(
        ids=ids, stage_ids=(-1, -1, 0, -1) * 2, logprobs=(0, 0, -1, 0) * 2, prompt_length=2, window_starts=(0, 4)
    )
    return rollout((9,), (-1,)).model_copy(update={"tokens": tokens})


def test_every_window_of_a_folded_attempt_has_the_other_opening():
    moved = reopen(folded(9, 8, 1, 7, 9, 8, 2, 6), (5,)).tokens
    assert moved.ids == (5, 1, 7, 5, 2, 6)
    assert moved.stage_ids == (-1, 0, -1) * 2
    assert moved.logprobs == (0, -1, 0) * 2
    assert (moved.window_starts, moved.prompt_length) == ((0, 3), 1)


def test_a_window_without_the_opening_is_refused():
    with pytest.raises(UsageError, match="does not begin with the rollout's opening"):
        reopen(folded(9, 8, 1, 7, 9, 4, 2, 6), (5,))


def test_the_weight_of_an_internalised_token_is_its_probability_without_the_lesson_over_that_with_it():
    # .1 without and .8 with: 1/8; .9 without and .3 with: 3, cut to 2
    old, sampled = torch.tensor([0.1, 0.9]).log(), torch.tensor([0.8, 0.3]).log()
    blank = torch.zeros(2)
    tokens = PolicyTokens(old, old, old, sampled, advantages=blank, stage_ids=blank.long(), entropy=blank)
    assert importance_weights(tokens, 2.0).tolist() == pytest.approx([0.125, 2.0])


def test_the_scale_of_a_step_is_matched_over_its_policy_tokens():
    one = Sample([9, 1, 2], [-1, 0, 3], np.array([0, 3, 1], np.float32), [0, 0, 0], temperature=1.0, policy_version=0)
    other = one._replace(advantages=np.array([0, -1, -5], np.float32))
    # (9 + 1 + 1 + 25) / 4 = 9: the root mean square is 3, so 6 is twice as much
    scaled = match_scale([one, other], 6.0)
    assert [list(sample.advantages) for sample in scaled] == [[0, 6, 2], [0, -2, -10]]
    assert match_scale([], 6.0) == []
    assert not match_scale([one._replace(advantages=np.zeros(3, np.float32))], 6.0)[0].advantages.any()
