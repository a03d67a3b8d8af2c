"""An attempt as a trainer needs it: the trajectory with its tokens, as the policy drew them."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

from rubricem_env.adapters.groups import NO_STAGE
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.trajectory import Trajectory


class Tokens(Protocol):
    """The tokens of an attempt, one entry each from the prompt to the end; the agent's `RolloutTokens` are such."""

    @property
    def ids(self) -> Sequence[int]: ...

    @property
    def stage_ids(self) -> Sequence[int]: ...

    @property
    def logprobs(self) -> Sequence[float]: ...

    @property
    def prompt_length(self) -> int: ...


class Played(Protocol):
    """One attempt; the agent's `Rollout` is such."""

    @property
    def trajectory(self) -> Trajectory: ...

    @property
    def tokens(self) -> Tokens | None: ...

    @property
    def is_valid(self) -> bool: ...


class Completion(NamedTuple):
    """What the policy and the tools wrote after the prompt."""

    ids: list[int]
    stage_ids: list[int]
    logprobs: list[float]


def tokens_of(attempt: Played) -> Tokens:
    """Its tokens.

    Raises:
        UsageError: the policy has no token mode.
    """
    if attempt.tokens is None:
        raise UsageError("the policy gave no tokens; training needs one with a token mode, such as LocalPolicy.")
    return attempt.tokens


def completion_of(attempt: Played) -> Completion:
    """All after the prompt; never empty."""
    tokens = tokens_of(attempt)
    start = tokens.prompt_length
    if len(tokens.ids) == start:
        # An episode that failed before its first token: trainers want one, and it is masked.
        return Completion([tokens.ids[-1]], [NO_STAGE], [0.0])
    return Completion(list(tokens.ids[start:]), list(tokens.stage_ids[start:]), list(tokens.logprobs[start:]))


def policy_runs(stage_ids: Sequence[int]) -> list[tuple[int, int]]:
    """Where the policy wrote, as [start, end) of each turn: between two turns stands what it read."""
    is_policy = [False, *(stage != NO_STAGE for stage in stage_ids), False]
    edges = [place for place, (before, after) in enumerate(pairwise(is_policy)) if before != after]
    return list(zip(edges[::2], edges[1::2], strict=True))
