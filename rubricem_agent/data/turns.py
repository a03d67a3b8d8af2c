"""What a teacher is asked for and answers with: the next turn of an episode."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import RubricEMError
from rubricem_env.domain.query import Query
from rubricem_env.domain.trajectory import Trajectory


class TeacherTask(NamedTuple):
    """One question to write a trace for; the id is unique within a run."""

    id: str
    query: Query


class PendingTurn(NamedTuple):
    """A turn that is to be written."""

    task: TeacherTask
    round: int
    """From 1."""
    trajectory: Trajectory
    """The record so far."""

    @property
    def id(self) -> str:
        return f"{self.task.id}.{self.round}"


class TurnReply(Frozen):
    """A teacher's answer to one pending turn: a text, or the reason why there is none."""

    id: Text
    text: Text = ""
    error: Text = ""


class Teacher(Protocol):
    """Writes the next turns of many episodes."""

    @property
    def name(self) -> str: ...

    async def write(self, pending: Sequence[PendingTurn]) -> Sequence[TurnReply]:
        """One reply for each pending turn, in any order. A failure of the model is a reply with an error.

        Raises:
            RepliesPending: someone else writes the replies, and has not yet.
        """
        ...

    async def aclose(self) -> None: ...


class RepliesPending(RubricEMError):
    """The run stops here, whole: start it again when the replies are there. Not a failure."""
