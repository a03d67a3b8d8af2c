"""ResearchRubrics: weighted rubric items, each judged over the whole report.

compliance = sum(weight * score) / sum(positive weights). A negative item subtracts only when it is satisfied; the
range is (-inf, 1] and nothing is clipped. The macro mean over samples is the benchmark's number. Files are JSON Lines,
one task with its weighted rubric per line.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import BaseModel, Field, JsonValue

from rubricem_agent.evals.benchmark import Benchmark
from rubricem_agent.evals.dataset import Gold
from rubricem_agent.evals.files import FileRow, json_lines, rows_loader
from rubricem_agent.evals.grading import Case, Grade, Grader, Grading, ask
from rubricem_agent.evals.reply_parsing import Unparsed, as_number, parse_json
from rubricem_agent.evals.rules import GEMINI_PRO, official_rules
from rubricem_env.domain.base import Text
from rubricem_env.domain.trajectory import AnswerFormat


class WeightedCriterion(FileRow):
    """One rubric item: a negative weight marks something to avoid."""

    criterion: Text
    weight: float
    axis: Text


class ResearchRubricsGold(Gold):
    """A row of the file: the task and its rubric."""

    id: Text = Field(validation_alias="sample_id", min_length=1)
    prompt: Text = Field(min_length=1)
    rubrics: tuple[WeightedCriterion, ...]


load = rows_loader("researchrubrics", json_lines, ResearchRubricsGold, prompt=lambda row: row.prompt, num_rows=101)


class CriterionVerdict(NamedTuple):
    """What the judge says of one rubric item; the verdict never enters the arithmetic."""

    verdict: JsonValue
    score: float


def parse_verdict(reply: str) -> CriterionVerdict | Unparsed:
    """Verdict and score of one reply.

    A fenced reply fails, and so does one whose score or confidence is not a number.
    A fraction is accepted: the official code turns `score` into a float without further checks.
    """
    parsed = parse_json(reply)
    if not isinstance(parsed, dict):
        return parsed if isinstance(parsed, Unparsed) else Unparsed("the reply is not a JSON object")
    score = as_number(parsed.get("score"))
    confidence = as_number(parsed.get("confidence"))
    if score is None or confidence is None:
        return Unparsed("score or confidence is not a number")
    return CriterionVerdict(parsed.get("verdict"), score)


def parse_finite_verdict(reply: str) -> CriterionVerdict | Unparsed:
    """As `parse_verdict`, which follows the official code, but NaN and infinity are no scores.

    A log that holds one could never be read again.
    """
    verdict = parse_verdict(reply)
    if isinstance(verdict, Unparsed) or math.isfinite(verdict.score):
        return verdict
    return Unparsed("score or confidence is not a number")


def compliance(scores: Sequence[float | None], weights: Sequence[float]) -> float:
    """The weighted score of one sample, None counting 0; 0 where no weight is positive."""
    numerator = sum((score or 0.0) * weight for score, weight in zip(scores, weights, strict=True))
    denominator = sum(weight for weight in weights if weight > 0)
    return numerator / denominator if denominator > 0 else 0.0


class ReplyShape(BaseModel):
    """The JSON that a judge is asked for; offered to servers as a schema and never relied upon."""

    verdict: str
    score: float
    confidence: float
    reasoning: str
    evidence_quotes: list[str]
    missing_elements: list[str]


def grade(case: Case, grader: Grader) -> Grading:
    """One round: every criterion. An empty report writes no rows officially, so that it leaves the mean.

    So does a report of which no verdict could be read; among others such an item counts 0, as officially.
    """
    if case.answer.is_empty:
        return grader.excluded("the report is empty")
    rubrics = case.gold_as(ResearchRubricsGold).rubrics
    verdicts, unreadable = yield from ask(
        grader.question(
            f"item-{number}",
            "researchrubrics",
            parse=parse_finite_verdict,
            schema=ReplyShape,
            report=case.answer.text,
            criterion=item.criterion,
            axis=item.axis,
            weight=str(item.weight),
        )
        for number, item in enumerate(rubrics)
    )
    scores = [None if isinstance(verdict, Unparsed) else verdict.score for verdict in verdicts]
    weights = [item.weight for item in rubrics]
    # The worst case of an item without a readable verdict: it is satisfied where the weight is negative.
    pairs = zip(scores, weights, strict=True)
    worst = compliance([float(weight < 0) if score is None else score for score, weight in pairs], weights)
    if scores and set(scores) == {None} and not grader.rules.is_strict:
        return Grade(None, worst, "the judge gave no verdict", unreadable=unreadable)
    return Grade(
        worst if grader.rules.is_strict else compliance(scores, weights),
        worst,
        metrics=_by_axis(rubrics, scores),
        labels={f"item-{number}": str(score) for number, score in enumerate(scores) if score is not None},
        unreadable=unreadable,
    )


def _by_axis(rubrics: Sequence[WeightedCriterion], scores: Sequence[float | None]) -> dict[str, float]:
    """Compliance by axis. Axes without a positive weight have nothing to divide by and are left out."""
    axes: dict[str, tuple[list[float | None], list[float]]] = {}
    for criterion, score in zip(rubrics, scores, strict=True):
        own, weights = axes.setdefault(f"axis:{criterion.axis}", ([], []))
        own.append(score)
        weights.append(criterion.weight)
    return {axis: compliance(own, weights) for axis, (own, weights) in axes.items() if max(weights) > 0}


BENCHMARK = Benchmark(
    name="researchrubrics",
    title="ResearchRubrics",
    answer_format=AnswerFormat.LONG,
    load=load,
    grader=lambda rules: Grader(rules, grade, "compliance", prompts=("researchrubrics",)),
    official=official_rules(GEMINI_PRO, max_output_tokens=8192, citations="numbered"),
    is_long=True,
    hub="hf:ScaleAI/researchrubrics/processed_data.jsonl",
    ids="sample_id of the data file",
)
