"""An attempt in tokens, as a trainer is given it."""

from types import SimpleNamespace

import pytest

from rubricem_agent.rollout.tokens import RolloutTokens
from rubricem_env.adapters.session import completion_of, policy_runs, tokens_of
from rubricem_env.domain.errors import UsageError


def attempt(tokens):
    return SimpleNamespace(tokens=tokens)


def test_the_completion_is_all_after_the_prompt():
    tokens = RolloutTokens(ids=(7, 8, 9), stage_ids=(-1, 0, -1), logprobs=(0.0, -0.5, 0.0), prompt_length=1)
    assert completion_of(attempt(tokens)) == ([8, 9], [0, -1], [-0.5, 0.0])


def test_an_episode_that_failed_before_its_first_token_is_one_masked_token():
    tokens = RolloutTokens(ids=(7, 8), stage_ids=(-1, -1), logprobs=(0.0, 0.0), prompt_length=2)
    assert completion_of(attempt(tokens)) == ([8], [-1], [0.0])


def test_a_policy_without_tokens_is_refused():
    with pytest.raises(UsageError, match="needs one with a token mode"):
        tokens_of(attempt(None))


def test_the_turns_of_the_policy_are_the_runs_of_its_tokens_whatever_stage_they_are_in():
    assert policy_runs([-1, 0, 0, 1, -1, -1, 3]) == [(1, 4), (6, 7)]
    assert policy_runs([-1, -1]) == []
