"""The lines of an evaluation's two logs: the agent's answers, and the judges' replies."""

from typing import Annotated, NamedTuple

from pydantic import Field

from rubricem_env.domain.base import Count, Frozen, Text
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.llm.thoughts import without_thoughts
from rubricem_env.llm.usage import Usage

Seconds = Annotated[float, Field(ge=0)]

Money = Annotated[float, Field(ge=0)]


class CaseKey(NamedTuple):
    """One example in one epoch."""

    id: str
    epoch: int


class VerdictKey(NamedTuple):
    """Identifies a question to a judge within a run."""

    case: CaseKey
    judge: str
    question: str
    asked: str
    """The hash of the prompt."""


class AnswerRecord(Frozen):
    """What the agent did with one example. A failure is recorded as well, and tried again on resume.

    An answerer fills in what it knows; the run adds its benchmark and mode, the cost and the time.
    """

    benchmark: Text = ""
    mode: Text = ""
    id: Text
    epoch: Count
    trajectory: Trajectory | None = None
    """The prompt as it was sent, every turn, every tool call."""
    given: Text | None = None
    """An answer from a file, instead of a trajectory."""
    failure: Text = ""
    usage: Usage = Usage()
    model: Text = ""
    dollars: Money | None = None
    """None where the model's price is unknown."""
    seconds: Seconds = 0.0

    @property
    def key(self) -> CaseKey:
        return CaseKey(self.id, self.epoch)

    @property
    def is_final(self) -> bool:
        return not self.failure


class CutReply(str):
    """A reply that the token limit cut. It holds no verdict."""

    __slots__ = ()


PAGES = "pages"
"""The judge's name in the log where a page was read."""


class VerdictRecord(Frozen):
    """A judge's replies to one question, all tries in order. An outage is recorded as well, and asked again."""

    benchmark: Text
    mode: Text
    id: Text
    epoch: Count
    judge: Text
    question: Text
    asked: Text
    """The start of the SHA-256 of the prompt: another answer or another prompt is another question."""
    replies: tuple[Text, ...] = ()
    cut: tuple[Count, ...] = ()
    """The indices of the replies that the token limit cut."""
    model: Text = ""
    """The name that the server reported."""
    failure: Text = ""
    usage: Usage = Usage()
    dollars: Money | None = None
    seconds: Seconds = 0.0

    @property
    def key(self) -> VerdictKey:
        return VerdictKey(CaseKey(self.id, self.epoch), self.judge, self.question, self.asked)

    @property
    def verdicts(self) -> tuple[str, ...]:
        """The replies as they are graded: without a judge's reasoning, which no official script has to read."""
        if self.judge == PAGES:
            return self.replies
        texts = map(without_thoughts, self.replies)
        return tuple(CutReply(text) if at in self.cut else text for at, text in enumerate(texts))

    @property
    def is_final(self) -> bool:
        """Whether the judge replied. An empty reply is an outage; a page may be empty."""
        is_empty = bool(self.replies) and not self.replies[-1].strip()
        return not self.failure and (self.judge == PAGES or not is_empty)
