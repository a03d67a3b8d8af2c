"""RACE, the official arithmetic: a report against a reference report, criterion by criterion.

Per dimension the judge's scores are averaged with the criteria's weights; the weighted sum of the dimensions is the
total; overall = target / (target + reference). The overall is not the mean of the normalised dimensions.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import JsonValue

from rubricem_agent.evals.benchmarks.drb_data import DIMENSIONS, TaskCriteria
from rubricem_agent.evals.reply_parsing import Unparsed


class ReportScore(NamedTuple):
    """One of the two reports, before both are normalised."""

    averages: dict[str, float]
    """The weighted average of each scored dimension."""
    total: float
    """The sum of the averages, weighted by the dimensions' weights."""


class JudgedCriterion(NamedTuple):
    """What the judge says of one criterion; a score that it leaves out is None."""

    criterion: str
    target: float | None
    reference: float | None


class TaskScore(NamedTuple):
    """The normalised dimensions, the overall score, and both reports before normalisation."""

    dimensions: dict[str, float]
    overall: float
    target: ReportScore
    reference: ReportScore


class NoTaskScore(NamedTuple):
    """Why a task has no score: it then leaves the mean, and is not a zero."""

    reason: str
    """As the official row says it."""
    raised: str = ""
    """The exception type of the official arithmetic; empty where it was not reached."""


def score_or_reason(scores: JsonValue | Unparsed, criteria: TaskCriteria, *, tries: int) -> TaskScore | NoTaskScore:
    """The score, or why the task has none."""
    if isinstance(scores, Unparsed):
        return NoTaskScore(f"Failed to get valid response after {tries} retries")
    if not criteria.criterions:
        missing = f"ID: {criteria.id} - Missing required criterions data, cannot calculate weighted scores"
        return NoTaskScore(f"Error calculating scores: {missing}", "ValueError")
    if not isinstance(scores, dict):
        kind = "str" if isinstance(scores, str) else "list"
        return NoTaskScore(f"Error calculating scores: '{kind}' object has no attribute 'items'", "AttributeError")
    try:
        return score_task(scores, criteria)
    except OverflowError as error:
        return NoTaskScore(f"Error calculating scores: {error}", "OverflowError")


def score_task(scores: Mapping[str, JsonValue], criteria: TaskCriteria) -> TaskScore:
    """The official arithmetic over a judge's object. Scores are not clamped.

    A dimension without a weight or without criteria, and one that is not a list, is skipped and reads 0.
    """
    targets: dict[str, float] = {}
    references: dict[str, float] = {}
    for dimension, entries in scores.items():
        # In file order; of two equal texts the last weight wins.
        known = {item.criterion: item.weight for item in criteria.of(dimension)}
        if isinstance(entries, list) and dimension in criteria.dimension_weight and known:
            targets[dimension], references[dimension] = _averages(entries, known)
    target = ReportScore(targets, _weighted_total(targets, criteria.dimension_weight))
    reference = ReportScore(references, _weighted_total(references, criteria.dimension_weight))
    dimensions = {
        dimension: share_of(targets[dimension], references[dimension]) if dimension in targets else 0.0
        for dimension in DIMENSIONS
    }
    return TaskScore(dimensions, share_of(target.total, reference.total), target, reference)


def share_of(target: float, reference: float) -> float:
    """The target's share of target + reference; 0 where that sum is not positive."""
    return target / (target + reference) if target + reference > 0 else 0.0


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


def _weighted_total(averages: Mapping[str, float], weights: Mapping[str, float]) -> float:
    total = 0.0
    # Added in order: `sum` compensates rounding, which the official loop does not.
    for dimension, average in averages.items():
        total += average * weights[dimension]
    return total


def _averages(entries: Sequence[JsonValue], known: Mapping[str, float]) -> tuple[float, float]:
    """The weighted averages of the target's and of the reference's scores."""
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


def _read_entry(entry: JsonValue) -> JudgedCriterion | None:
    """The entry; None where it is no object or a score is not a number: it is then ignored."""
    if not isinstance(entry, dict):
        return None
    named = entry.get("criterion")
    target = entry.get("article_1_score")
    target = entry.get("target_score") if target is None else target
    criterion = named.strip() if isinstance(named, str) else ""
    try:
        return JudgedCriterion(criterion, _number(target), _number(entry.get("article_2_score")))
    except ValueError:
        return None


def _number(value: JsonValue) -> float | None:
    """Numbers, booleans and numeric strings are numbers to the official code."""
    if value is None:
        return None
    if isinstance(value, dict | list):
        raise ValueError(f"{type(value).__name__} is not a score")
    return float(value)
