"""What passes between a run that generates teacher data and its teacher: questions, traces and replies."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import RubricEMError
from rubricem_env.domain.trajectory import Origin, Query, Trajectory


class TeacherTask(NamedTuple):
    """One question to write a trace for; the id is unique within a run."""

    id: str
    query: Query


class Trace(NamedTuple):
    """An episode of a task, finished or under way."""

    task: TeacherTask
    trajectory: Trajectory
    """The record so far."""
    failure: str = ""
    """Why the teacher stopped writing; empty where the trace ended by itself."""
    is_open: bool = False
    """Whether the teacher's server failed: no fault of the trace, and the next run asks again."""

    @property
    def round(self) -> int:
        """The number of the next turn, from 1."""
        return 1 + sum(segment.origin is Origin.POLICY for segment in self.trajectory.segments)

    @property
    def next_id(self) -> str:
        """The id of the next turn."""
        return f"{self.task.id}.{self.round}"


class TurnReply(Frozen):
    """A teacher's reply to one turn: a text, or the reason why there is none."""

    id: Text
    text: Text = ""
    error: Text = ""
    outage: bool = False
    """Whether the error is the server's, and says nothing of the trace."""


class Teacher(Protocol):
    """Writes the next turns of many episodes."""

    @property
    def name(self) -> str: ...

    async def write(self, pending: Sequence[Trace]) -> Sequence[TurnReply]:
        """One reply to the next turn of each trace, in any order. A failure of the model is a reply with an error.

        Raises:
            RepliesPending: someone else writes the replies, and has not yet.
        """
        ...

    async def aclose(self) -> None: ...


class RepliesPending(RubricEMError):
    """The run stops here, whole: start it again when the replies are there. Not a failure."""
