"""A rollout: one recorded attempt at a question.

A failure of the policy or the tools is a field of the rollout, not an exception.
"""

from functools import cached_property
from typing import Annotated

from pydantic import Field

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.llm.usage import Usage
from rubricem_env.scaffold.parsed import ParsedTrajectory, parse_trajectory
from rubricem_records.rollout_tokens import RolloutTokens

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
