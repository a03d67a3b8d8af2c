"""The two kinds of lines that a run's logs hold: one for each answer, one for each question to a judge."""

from typing import Annotated, NamedTuple

from pydantic import Field

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.llm.usage import Usage

Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]
Money = Annotated[float, Field(ge=0)]


class CaseKey(NamedTuple):
    """One example in one epoch."""

    id: str
    epoch: int


class AnswerRecord(Frozen):
    """What the agent did with one example. A failure of the world is a record as well, and is tried again on resume."""

    benchmark: Text
    mode: Text
    id: Text
    epoch: Count
    trajectory: Trajectory | None = None
    """The prompt as it was sent, every turn, every tool call."""
    given: Text | None = None
    """An answer from elsewhere, in place of a trajectory."""
    failure: Text = ""
    usage: Usage = Usage()
    model: Text = ""
    dollars: Money = 0.0
    seconds: Seconds = 0.0

    @property
    def key(self) -> CaseKey:
        return CaseKey(self.id, self.epoch)

    @property
    def is_final(self) -> bool:
        return not self.failure


class VerdictRecord(Frozen):
    """What a judge replied to one question, all tries in order. An outage is a record as well, and is asked again."""

    benchmark: Text
    mode: Text
    id: Text
    epoch: Count
    judge: Text
    question: Text
    asked: Text
    """The start of the SHA-256 of what was asked: another answer or another prompt is another question."""
    replies: tuple[Text, ...] = ()
    model: Text = ""
    """As the server named itself."""
    failure: Text = ""
    usage: Usage = Usage()
    dollars: Money = 0.0
    seconds: Seconds = 0.0

    @property
    def key(self) -> "VerdictKey":
        return VerdictKey(self.id, self.epoch, self.judge, self.question, self.asked)

    @property
    def is_final(self) -> bool:
        return not self.failure


class VerdictKey(NamedTuple):
    """Names a question to a judge within a run."""

    id: str
    epoch: int
    judge: str
    question: str
    asked: str
