"""RACE, the official arithmetic: a report against a reference report, criterion by criterion.

Per dimension the judge's scores are averaged with the criteria's weights; the weighted sum of the dimensions is the
total; overall = target / (target + reference). The overall is not the mean of the normalised dimensions.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import JsonValue

from rubricem_agent.evals.benchmarks.drb_data import DIMENSIONS, TaskCriteria
from rubricem_agent.evals.reply_parsing import Unparsed

Side = tuple[dict[str, float], float]
"""Of one report: the weighted average per scored dimension, and their total weighted by the dimensions' weights."""


class TaskScore(NamedTuple):
    """The normalised dimensions, the overall score, and both reports before normalisation."""

    dimensions: dict[str, float]
    overall: float
    target: Side
    reference: Side


def score_or_error(scores: JsonValue | Unparsed, criteria: TaskCriteria, *, tries: int) -> TaskScore | str:
    """The score, or why the task has none: it then leaves the mean, and is not a zero."""
    if isinstance(scores, Unparsed):
        return f"Failed to get valid response after {tries} retries"
    if not criteria.criterions:
        missing = f"ID: {criteria.id} - Missing required criterions data, cannot calculate weighted scores"
        return f"Error calculating scores: {missing}"
    if not isinstance(scores, dict):
        kind = "str" if isinstance(scores, str) else "list"
        return f"Error calculating scores: '{kind}' object has no attribute 'items'"
    try:
        return score_task(scores, criteria)
    except OverflowError as error:
        return f"Error calculating scores: {error}"


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
    target, reference = (_weighted_total(side, criteria.dimension_weight) for side in (targets, references))
    dimensions = {
        dimension: share_of(targets[dimension], references[dimension]) if dimension in targets else 0.0
        for dimension in DIMENSIONS
    }
    return TaskScore(dimensions, share_of(target, reference), (targets, target), (references, reference))


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
    target = reference = weight_sum = 0.0
    last_has_reference = False
    for entry in map(_read_entry, entries):
        if entry is None:
            continue
        criterion, target_score, reference_score = entry
        last_has_reference = reference_score is not None
        if not criterion or target_score is None:
            continue
        weight = weight_of(criterion, known)
        target += target_score * weight
        weight_sum += weight
        if reference_score is not None:
            reference += reference_score * weight
    if weight_sum <= 0:
        return 0.0, 0.0
    # The official code looks at the reference score of the last item alone: if that is missing, all count as none.
    return target / weight_sum, reference / weight_sum if last_has_reference else 0.0


def _read_entry(entry: JsonValue) -> tuple[str, float | None, float | None] | None:
    """Criterion and both scores; None where the entry is no object or a score is not a number: it is then ignored."""
    if not isinstance(entry, dict):
        return None
    named = entry.get("criterion")
    target = entry.get("article_1_score")
    target = entry.get("target_score") if target is None else target
    try:
        scores = (_number(target), _number(entry.get("article_2_score")))
    except ValueError:
        return None
    return (named.strip() if isinstance(named, str) else "", *scores)


def _number(value: JsonValue) -> float | None:
    """Numbers, booleans and numeric strings are numbers to the official code."""
    if value is None:
        return None
    if isinstance(value, dict | list):
        raise ValueError(f"{type(value).__name__} is not a score")
    return float(value)
