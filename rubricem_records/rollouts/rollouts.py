"""A rollout: one recorded attempt at a question.

A failure of the policy or the tools is a field of the rollout, not an exception.
"""

from functools import cached_property
from typing import Annotated

from pydantic import ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.llm.usage import Usage
from rubricem_env.scaffold.parsed import ParsedTrajectory, parse_trajectory
from rubricem_records.rollouts.rollout_tokens import RolloutTokens

ROLLOUT_VERSION = 1


class RolloutTrajectory:
    """A trajectory that is parsed at most once: by whoever played the episode, or on the first use of `parsed`.

    As a pydantic field it is read from a trajectory and written as one.
    """

    def __init__(self, trajectory: Trajectory) -> None:
        self.trajectory = trajectory

    @classmethod
    def of_parsed(cls, parsed: ParsedTrajectory) -> "RolloutTrajectory":
        """A trajectory that its episode has parsed already."""
        carried = cls(parsed.trajectory)
        carried.parsed = parsed
        return carried

    @cached_property
    def parsed(self) -> ParsedTrajectory:
        return parse_trajectory(self.trajectory)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RolloutTrajectory) and self.trajectory == other.trajectory

    def __hash__(self) -> int:
        return hash(self.trajectory)

    def __repr__(self) -> str:
        return repr(self.trajectory)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        trajectory = handler(Trajectory)
        as_written = core_schema.no_info_after_validator_function(cls, trajectory)
        carried = core_schema.is_instance_schema(cls)
        return core_schema.json_or_python_schema(
            json_schema=as_written,
            python_schema=core_schema.union_schema([carried, as_written], mode="left_to_right"),
            serialization=core_schema.plain_serializer_function_ser_schema(_trajectory_of, return_schema=trajectory),
        )


def _trajectory_of(carried: RolloutTrajectory) -> Trajectory:
    return carried.trajectory


class Rollout(Frozen):
    """One attempt at one question by one policy."""

    model_config = ConfigDict(serialize_by_alias=True)

    version: Annotated[int, Field(ge=ROLLOUT_VERSION, le=ROLLOUT_VERSION)] = ROLLOUT_VERSION
    carried: RolloutTrajectory = Field(alias="trajectory")
    """The field `trajectory` of a record."""
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

    @property
    def trajectory(self) -> Trajectory:
        """The recorded episode."""
        return self.carried.trajectory

    @property
    def parsed(self) -> ParsedTrajectory:
        """The parsed trajectory. `run_episode` provides it; a rollout from a file is parsed on first use."""
        return self.carried.parsed
