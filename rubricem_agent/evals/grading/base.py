"""What a benchmark has to offer: how one answer is graded, and what all grades add up to."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from rubricem_agent.evals.grading.grade import Case, Grade
from rubricem_agent.evals.grading.question import Grading

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
