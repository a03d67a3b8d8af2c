"""A rollout: one recorded attempt at a question, its index in a run, and the seed that follows from the index.

A failure of the policy or the tools is a field of the rollout, not an exception.
"""

import hashlib
from functools import cached_property
from typing import Annotated

import numpy as np
from pydantic import Field

from rubricem_agent.rollout.tokens import RolloutTokens
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.llm.usage import Usage
from rubricem_env.scaffold.parsed import ParsedTrajectory, parse_trajectory

ROLLOUT_VERSION = 1


class Rollout(Frozen):
    """One attempt at one question by one policy."""

    version: Annotated[int, Field(ge=ROLLOUT_VERSION, le=ROLLOUT_VERSION)] = ROLLOUT_VERSION
    trajectory: Trajectory
    policy: Text
    prompt_hash: Text = ""
    """Hash of the prompt that the policy was given."""
    temperature: Annotated[float, Field(ge=0)] = 1.0
    usage: Usage = Usage()
    tokens: RolloutTokens | None = None
    """None for a policy without token mode."""
    failure: Text = ""
    """Why the episode was abandoned, in one sentence; empty where it was not."""

    @property
    def is_valid(self) -> bool:
        """Whether it counts: an episode that a limit ended does, one that the infrastructure ended does not."""
        return not self.failure

    @cached_property
    def parsed(self) -> ParsedTrajectory:
        """The parsed trajectory. `run_episode` provides it; a rollout from a file is parsed on first use."""
        return parse_trajectory(self.trajectory)

    def with_parsed(self, parsed: ParsedTrajectory) -> "Rollout":
        """This rollout, with its parsed trajectory provided by the caller."""
        self.__dict__["parsed"] = parsed
        return self


RolloutIndex = tuple[str, int, int]
"""Identifies a rollout of a run: the question's key, the occurrence of the question, the attempt."""


def attempt_seed(seed: int, index: RolloutIndex) -> int:
    """The seed of one attempt: it depends on the attempt's index, not on the order of running."""
    query_key, occurrence, attempt = index
    key = int.from_bytes(hashlib.sha256(query_key.encode()).digest()[:8])
    return int(np.random.SeedSequence([seed, key, occurrence, attempt]).generate_state(1)[0])
