"""What the grading of one answer comes to, and what it starts from."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from pydantic import JsonValue

from rubricem_agent.evals.example import Example, Gold
from rubricem_agent.evals.extraction import Extracted
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
