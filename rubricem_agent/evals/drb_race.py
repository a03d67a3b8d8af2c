"""DeepResearchBench RACE: a report against a reference report, criterion by criterion.

Per dimension the judge's scores are averaged with the criteria's weights; the weighted sum of the dimensions is the
total; overall = target / (target + reference). The overall is not the mean of the normalised dimensions.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import ConfigDict, Field, JsonValue

from rubricem_agent.evals.race_reply import DIMENSIONS, parse_scores
from rubricem_agent.evals.replies import Replies
from rubricem_agent.evals.reply_json import Unparsed
from rubricem_env.domain.base import Frozen, Text

MAX_TRIES = 10


class Criterion(Frozen):
    """One criterion of a dimension. The judge sees text and explanation, never the weight."""

    model_config = ConfigDict(extra="ignore")

    criterion: Text
    weight: float
    explanation: Text = ""


class TaskCriteria(Frozen):
    """The criteria of one task: a weight per dimension, and weighted criteria in each."""

    model_config = ConfigDict(extra="ignore")

    id: int | str = "Unknown"
    dimension_weight: dict[str, float] = Field(default_factory=dict)
    criterions: dict[str, tuple[Criterion, ...]] = Field(default_factory=dict)

    def weights_in(self, dimension: str) -> dict[str, float]:
        """Criterion text to weight, in file order; of two equal texts the last weight wins."""
        return {item.criterion: item.weight for item in self.criterions.get(dimension, ())}


class Side(NamedTuple):
    """Weighted average per scored dimension, and their total weighted by the dimensions' weights."""

    dimensions: dict[str, float]
    total: float


class Weighted(NamedTuple):
    """Both reports before normalisation."""

    target: Side
    reference: Side


class TaskScore(NamedTuple):
    """The normalised dimensions and the overall score."""

    dimensions: dict[str, float]
    overall: float
    weighted: Weighted


class TaskFailure(NamedTuple):
    """Why a task has no score. Its row carries the error and leaves the mean; it is not a zero."""

    error: str


class JudgedTask(NamedTuple):
    """The outcome of a task and the number of replies asked for."""

    outcome: TaskScore | TaskFailure
    judge_calls: int


class _Entry(NamedTuple):
    criterion: str
    target: float | None
    reference: float | None


def judge_task(replies: Sequence[str], criteria: TaskCriteria, *, max_tries: int = MAX_TRIES) -> JudgedTask:
    """Score the first readable reply; after `max_tries` unreadable ones the task has no score."""
    judge = Replies(replies)
    while judge.calls < max_tries:
        reply = judge.ask()
        scores = Unparsed("the request failed") if reply is None else parse_scores(reply)
        if not isinstance(scores, Unparsed):
            return JudgedTask(_score_or_failure(scores, criteria), judge.calls)
    return JudgedTask(TaskFailure(f"Failed to get valid response after {max_tries} retries"), judge.calls)


def score_task(scores: Mapping[str, JsonValue], criteria: TaskCriteria) -> TaskScore:
    """The official arithmetic over a judge's object. Scores are not clamped."""
    weighted = weigh(scores, criteria)
    target, reference = weighted
    dimensions = {
        dimension: share_of(target.dimensions[dimension], reference.dimensions[dimension])
        if dimension in target.dimensions
        else 0.0
        for dimension in DIMENSIONS
    }
    return TaskScore(dimensions, share_of(target.total, reference.total), weighted)


def share_of(target: float, reference: float) -> float:
    """The target's share of target + reference; 0 where that sum is not positive."""
    return target / (target + reference) if target + reference > 0 else 0.0


def weigh(scores: Mapping[str, JsonValue], criteria: TaskCriteria) -> Weighted:
    """Averages and totals of both reports, in the order of the judge's object.

    A dimension without a weight or without criteria, and one that is not a list, is passed over.
    """
    targets: dict[str, float] = {}
    references: dict[str, float] = {}
    for dimension, entries in scores.items():
        known = criteria.weights_in(dimension)
        if not isinstance(entries, list) or dimension not in criteria.dimension_weight or not known:
            continue
        targets[dimension], references[dimension] = _averages(entries, known)
    return Weighted(_side(targets, criteria.dimension_weight), _side(references, criteria.dimension_weight))


def weight_of(criterion: str, known: Mapping[str, float]) -> float:
    """The weight of the criterion that the judge names: exact, else without case, else a part of one another.

    The first criterion in file order wins; a text that matches none takes the dimension's mean weight.
    """
    if criterion in known:
        return known[criterion]
    wanted = criterion.lower()
    for text, weight in known.items():
        if text.lower() == wanted:
            return weight
    for text, weight in known.items():
        if wanted in text.lower() or text.lower() in wanted:
            return weight
    return sum(known.values()) / len(known)


def _side(averages: dict[str, float], weights: Mapping[str, float]) -> Side:
    total = 0.0
    for dimension, average in averages.items():
        total += average * weights[dimension]
    return Side(averages, total)


def _averages(entries: Sequence[JsonValue], known: Mapping[str, float]) -> tuple[float, float]:
    target = reference = weight_sum = 0.0
    last_has_reference = False
    for entry in map(_read_entry, entries):
        if entry is None:
            continue
        last_has_reference = entry.reference is not None
        if not entry.criterion or entry.target is None:
            continue
        weight = weight_of(entry.criterion, known)
        target += entry.target * weight
        weight_sum += weight
        if entry.reference is not None:
            reference += entry.reference * weight
    if weight_sum <= 0:
        return 0.0, 0.0
    # The official code looks at the reference score of the last item alone: if that is missing, all count as none.
    return target / weight_sum, reference / weight_sum if last_has_reference else 0.0


def _read_entry(entry: JsonValue) -> _Entry | None:
    """The entry, or None where it is no object or a score in it is not a number: such an entry leaves no trace."""
    if not isinstance(entry, dict):
        return None
    named = entry.get("criterion")
    target = entry.get("article_1_score")
    single = entry.get("target_score")
    try:
        return _Entry(
            named.strip() if isinstance(named, str) else "",
            _number(single if target is None else target),
            _number(entry.get("article_2_score")),
        )
    except ValueError:
        return None


def _number(value: JsonValue) -> float | None:
    """Numbers, booleans and numeric strings are numbers to the official code."""
    if value is None:
        return None
    if isinstance(value, dict | list):
        raise ValueError(f"{type(value).__name__} is not a score")
    return float(value)


def _score_or_failure(scores: JsonValue, criteria: TaskCriteria) -> TaskScore | TaskFailure:
    if not isinstance(scores, dict):
        kind = "str" if isinstance(scores, str) else "list"
        return TaskFailure(f"Error calculating scores: '{kind}' object has no attribute 'items'")
    if not criteria.criterions:
        missing = f"ID: {criteria.id} - Missing required criterions data, cannot calculate weighted scores"
        return TaskFailure(f"Error calculating scores: {missing}")
    try:
        return score_task(scores, criteria)
    except OverflowError as error:
        return TaskFailure(f"Error calculating scores: {error}")
