"""ResearchRubrics: weighted rubric items, each judged over the whole report.

compliance = sum(weight * score) / sum(positive weights). A negative item subtracts only when it is satisfied; the
range is (-inf, 1] and nothing is clipped. The macro mean over samples is the benchmark's number.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import JsonValue

from rubricem_agent.evals.replies import Replies
from rubricem_agent.evals.reply_json import Unparsed, parse_json

MAX_TRIES = 3
JUDGE_FAILED = "Error"

TERNARY = {"Satisfied": 1.0, "Partially Satisfied": 0.5, "Not Satisfied": 0.0}
BINARY = {"Satisfied": 1.0}
"""The binary reading of the older labels: a partial is not satisfied. Unknown labels count 0 in both."""


class ItemVerdict(NamedTuple):
    """What the judge said of one item. `score` enters the arithmetic, `verdict` never does."""

    verdict: JsonValue
    score: float


class GradedItem(NamedTuple):
    """The verdict as it is counted, whether the judge succeeded, and the replies it took."""

    verdict: JsonValue
    score: float
    success: bool
    judge_calls: int


class ItemResult(NamedTuple):
    """One row of a result file: what the official averaging script reads."""

    score: float
    weight: float


class MacroMean(NamedTuple):
    """The unweighted mean over the samples that have rows."""

    total_samples: int
    average: float


def parse_verdict(reply: str) -> ItemVerdict | Unparsed:
    """Verdict and score of one reply. A fenced reply fails; score and confidence must both read as numbers.

    A fraction passes through: the official code turns `score` into a float and asks no more.
    """
    parsed = parse_json(reply)
    if not isinstance(parsed, dict):
        return parsed if isinstance(parsed, Unparsed) else Unparsed("the reply is not a JSON object")
    score, confidence = _number(parsed.get("score")), _number(parsed.get("confidence"))
    if score is None or confidence is None:
        return Unparsed("score or confidence is not a number")
    return ItemVerdict(parsed.get("verdict"), score)


def grade_item(replies: Sequence[str]) -> GradedItem:
    """Three tries; then the item is an error with score 0 that stays in the sum: on a negative item that helps the model."""
    judge = Replies(replies)
    while judge.calls < MAX_TRIES:
        reply = judge.ask()
        verdict = Unparsed("the request failed") if reply is None else parse_verdict(reply)
        if not isinstance(verdict, Unparsed):
            return GradedItem(verdict.verdict, verdict.score, True, judge.calls)
    return GradedItem(JUDGE_FAILED, 0.0, False, judge.calls)


def compliance(scores: Sequence[float], weights: Sequence[float]) -> float:
    """The weighted score of one sample; 0 where no weight is positive."""
    numerator = sum(score * weight for score, weight in zip(scores, weights, strict=True))
    denominator = sum(weight for weight in weights if weight > 0)
    return numerator / denominator if denominator > 0 else 0.0


def strict_compliance(items: Sequence[GradedItem], weights: Sequence[float]) -> float:
    """Strict mode: an item that the judge failed on counts as the worst case, satisfied where the weight is negative."""
    worst = [item.score if item.success else float(weight < 0) for item, weight in zip(items, weights, strict=True)]
    return compliance(worst, weights)


def labelled_score(presence: Sequence[str], weights: Sequence[float], *, values: Mapping[str, float]) -> float:
    """The older scoring from labels, ternary or binary by the `values` given."""
    return compliance([values.get(label, 0.0) for label in presence], weights)


def macro_mean(samples: Sequence[Sequence[ItemResult]]) -> MacroMean:
    """The mean compliance over samples; 0 for none.

    A sample without rows is no sample: an empty report writes none, and the official script never hears of it.
    """
    scores = [compliance([row.score for row in rows], [row.weight for row in rows]) for rows in samples if rows]
    return MacroMean(len(scores), sum(scores) / len(scores) if scores else 0.0)


def _number(value: JsonValue) -> float | None:
    if value is None or isinstance(value, dict | list):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
