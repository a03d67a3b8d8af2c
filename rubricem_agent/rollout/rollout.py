"""A rollout: one attempt with a policy, as it is kept; a failure of the world is part of it, not a crash."""

from typing import Annotated

from pydantic import Field

from rubricem_agent.rollout.tokens import RolloutTokens
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.llm.usage import Usage

ROLLOUT_VERSION = 1


class Rollout(Frozen):
    """One attempt at one question by one policy."""

    version: Annotated[int, Field(ge=ROLLOUT_VERSION, le=ROLLOUT_VERSION)] = ROLLOUT_VERSION
    trajectory: Trajectory
    policy: Text
    prompt_hash: Text = ""
    """Of the prompt that the policy was given."""
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
