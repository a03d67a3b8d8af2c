"""What the grading of one answer comes to, and what it starts from.

The judge prompts of a benchmark: read once, filled often, and known by one hash.

What a grader asks, of a judge or of a page, and what comes back.

What a benchmark has to offer: how one answer is graded, and what all grades add up to.

A grading from recorded replies, without a judge: how every number of a report comes about.
"""

import hashlib
from collections.abc import Callable, Generator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeVar

from pydantic import BaseModel, JsonValue

from rubricem_agent.evals.base import Example, Gold
from rubricem_agent.evals.extraction import Extracted
from rubricem_agent.prompting import AgentPromptFile, fill, read_prompt
from rubricem_env.domain.trajectory import Trajectory

_NOTHING: Mapping[str, float] = MappingProxyType({})
_NO_LABELS: Mapping[str, str] = MappingProxyType({})
_NO_RECORD: Mapping[str, JsonValue] = MappingProxyType({})

GoldT = TypeVar("GoldT", bound=Gold)


class Case(NamedTuple):
    """One answer with all that a grader may look at."""

    example: Example
    gold: Gold
    answer: Extracted
    trajectory: Trajectory | None = None

    def gold_as(self, kind: type[GoldT]) -> GoldT:
        """The gold as the grader's own type; another one is a bug of the suite."""
        assert isinstance(self.gold, kind), f"{type(self.gold).__name__} is no {kind.__name__}"
        return self.gold


class Grade(NamedTuple):
    """One graded answer."""

    score: float | None
    """What enters the mean; None where the mode leaves the answer out."""
    worst: float
    """What it would count if every failure counted as the worst case."""
    excluded: str = ""
    """Why the score is None."""
    metrics: Mapping[str, float] = _NOTHING
    """The named numbers of this answer, such as axes."""
    labels: Mapping[str, str] = _NO_LABELS
    """What the judge said, by question: agreement of judges is counted on these."""
    unreadable: int = 0
    """Replies that no verdict could be read from."""
    record: Mapping[str, JsonValue] = _NO_RECORD
    """What the aggregate of the benchmark needs beyond numbers."""


class JudgePrompts:
    """Prompt files by name."""

    def __init__(self, prompts: Mapping[str, AgentPromptFile]) -> None:
        self._prompts = prompts

    @classmethod
    def read(cls, *names: str) -> "JudgePrompts":
        """The files `judge_NAME.md`."""
        return cls({name: read_prompt(f"judge_{name}") for name in names})

    @property
    def hash(self) -> str:
        """One hash for all of them; that of nothing where there are none."""
        together = "".join(f"{name}:{prompt.hash};" for name, prompt in sorted(self._prompts.items()))
        return hashlib.sha256(together.encode()).hexdigest()[:16]

    def user(self, name: str, **parts: str) -> str:
        """The user message with its places filled."""
        return fill(self._prompts[name].section("user"), parts)

    def system(self, name: str) -> str:
        """The system message."""
        return self._prompts[name].section("system")


class Responder(StrEnum):
    """Who answers a question."""

    JUDGE = "judge"
    PAGE = "page"
    """The prompt is a url; the reply is the text of the page, empty where it could not be read."""


def accept_any(reply: str) -> bool:
    """For questions that every reply answers."""
    return True


class GradingQuestion(NamedTuple):
    """One thing that is asked about one answer."""

    key: str
    """Names it within the grading of the answer."""
    prompt: str
    system: str = ""
    tries: int = 1
    """Asked again until a reply is accepted, at most so often in all."""
    accepts: Callable[[str], bool] = accept_any
    schema: type[BaseModel] | None = None
    """Offered to servers that know JSON modes; the reply is not held to it."""
    asked: Responder = Responder.JUDGE


JudgeReplies = tuple[str, ...]
"""All replies to one question, in order: the last one was accepted, or they are as many as the question has tries."""

Grading = Generator[tuple[GradingQuestion, ...], tuple[JudgeReplies, ...], Grade]
"""Yields rounds of questions that do not depend on each other, is sent their replies, returns the grade.

It does no I/O, so that a recorded grading is replayed by sending the recorded replies.
"""


_NO_TEXTS: Mapping[str, str] = MappingProxyType({})


class GradedExample(NamedTuple):
    """A grade with the name of what was graded."""

    id: str
    epoch: int
    grade: Grade


class Totals(NamedTuple):
    """The benchmark's own arithmetic over all graded answers."""

    headline: str
    """The metric that a table shows."""
    metrics: Mapping[str, float | None]
    """None where nothing was there to average."""
    texts: Mapping[str, str] = _NO_TEXTS
    """What the official scorer prints, letter by letter."""

    @property
    def score(self) -> float | None:
        return self.metrics.get(self.headline)


class Grader(Protocol):
    """One benchmark in one mode."""

    @property
    def prompt_hash(self) -> str:
        """Of all judge prompts together."""
        ...

    @property
    def is_binary(self) -> bool:
        """Whether every score is 0 or 1."""
        ...

    def grade(self, case: Case) -> Grading:
        """Ask and grade; a reply that cannot be read is part of the grade, never an exception."""
        ...

    def total(self, graded: Sequence[GradedExample]) -> Totals:
        """Over all graded answers, sorted by id and epoch."""
        ...


def scores_of(graded: Sequence[GradedExample]) -> list[float]:
    """The scores that enter the mean."""
    return [one.grade.score for one in graded if one.grade.score is not None]


def mean_of(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def mean_metrics(graded: Sequence[GradedExample]) -> dict[str, float | None]:
    """The plain mean of each named number over the scored answers that have it, names in order of first appearance."""
    columns: dict[str, list[float]] = {}
    for one in graded:
        if one.grade.score is not None:
            for name, value in one.grade.metrics.items():
                columns.setdefault(name, []).append(value)
    return {name: mean_of(values) for name, values in columns.items()}


class MissingReplyError(LookupError):
    """A question has no recorded reply."""

    def __init__(self, question: GradingQuestion) -> None:
        super().__init__(f"the question {question.key} has no reply")
        self.question = question


def replay(grading: Grading, find: Callable[[GradingQuestion], JudgeReplies | None]) -> Grade:
    """Send the recorded replies round by round.

    Raises:
        MissingReplyError: for the first question without a reply.
    """
    try:
        questions = next(grading)
        while True:
            questions = grading.send(tuple(_found(question, find) for question in questions))
    except StopIteration as finished:
        grade: Grade = finished.value
        return grade


def _found(question: GradingQuestion, find: Callable[[GradingQuestion], JudgeReplies | None]) -> JudgeReplies:
    replies = find(question)
    if not replies:
        raise MissingReplyError(question)
    return replies
