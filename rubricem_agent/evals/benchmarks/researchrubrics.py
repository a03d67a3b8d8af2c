"""ResearchRubrics: weighted rubric items, each judged over the whole report.

compliance = sum(weight * score) / sum(positive weights). A negative item subtracts only when it is satisfied; the
range is (-inf, 1] and nothing is clipped. The macro mean over samples is the benchmark's number. Files are JSON Lines,
one task with its weighted rubric per line.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from pydantic import Field, JsonValue

from rubricem_agent.evals.benchmark import Benchmark
from rubricem_agent.evals.dataset import Gold
from rubricem_agent.evals.files import FileRow, json_lines, rows_loader
from rubricem_agent.evals.grading import Asking, Case, Grade, Grader
from rubricem_agent.evals.reply_parsing import Unparsed, as_number, parse_json, read_form
from rubricem_agent.evals.rules import GEMINI_PRO, official_rules, paper_rules
from rubricem_env.domain.base import Frozen, Text, UnitScore
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
    """Verdict and score of one reply, by the official parse.

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


class ReplyShape(Frozen):
    """The JSON that a judge is asked for."""

    verdict: Literal["Satisfied", "Not Satisfied"]
    score: UnitScore
    confidence: UnitScore
    reasoning: str = ""
    evidence_quotes: list[str] = Field(default_factory=list)
    missing_elements: list[str] = Field(default_factory=list)


def read_verdict(reply: str) -> CriterionVerdict | Unparsed:
    """Verdict and score of a reply that is one JSON object of the form that was asked for.

    There is no middle: the score is 1 where the verdict says that the criterion is satisfied, and 0 where not.
    """
    said = read_form(reply, ReplyShape)
    if isinstance(said, Unparsed):
        return said
    if said.score != float(said.verdict == "Satisfied"):
        return Unparsed(f"the verdict is {said.verdict} and the score {said.score:g}")
    return CriterionVerdict(said.verdict, said.score)


def parse_finite_verdict(reply: str) -> CriterionVerdict | Unparsed:
    """As `parse_verdict`, but NaN and infinity are no scores: a log that holds one could never be read again."""
    verdict = parse_verdict(reply)
    if isinstance(verdict, Unparsed) or math.isfinite(verdict.score):
        return verdict
    return Unparsed("score or confidence is not a number")


def compliance(scores: Sequence[float | None], weights: Sequence[float]) -> float:
    """The weighted score of one sample, None counting 0; 0 where no weight is positive."""
    numerator = sum((score or 0.0) * weight for score, weight in zip(scores, weights, strict=True))
    denominator = sum(weight for weight in weights if weight > 0)
    return numerator / denominator if denominator > 0 else 0.0


def grade(case: Case, grader: Grader) -> Asking[Grade]:
    """One round: every criterion. An empty report writes no rows officially, so that it leaves the mean.

    So does a report with a criterion that got no verdict. Officially such a criterion counts 0 among others.
    """
    if case.answer.is_empty:
        return grader.excluded("the report is empty")
    rubrics = case.gold_as(ResearchRubricsGold).rubrics
    verdicts = yield tuple(
        grader.question(
            f"item-{number}",
            "researchrubrics",
            parse=read_verdict,
            official_parse=parse_finite_verdict,
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
    labels = {f"item-{number}": str(score) for number, score in enumerate(scores) if score is not None}
    is_left_out = (not labels) if grader.rules.is_lenient else len(labels) < len(rubrics)
    if rubrics and is_left_out and not grader.rules.is_strict:
        return Grade(None, worst, "a criterion got no verdict", labels=labels)
    return Grade(
        worst if grader.rules.is_strict else compliance(scores, weights),
        worst,
        metrics=_by_axis(rubrics, scores),
        labels=labels,
    )


def _by_axis(rubrics: Sequence[WeightedCriterion], scores: Sequence[float | None]) -> dict[str, float]:
    """Compliance by axis. Axes without a positive weight have nothing to divide by and are left out."""
    axes: dict[str, tuple[list[float | None], list[float]]] = {}
    for criterion, score in zip(rubrics, scores, strict=True):
        own, weights = axes.setdefault(f"axis:{criterion.axis}", ([], []))
        own.append(score)
        weights.append(criterion.weight)
    return {axis: compliance(own, weights) for axis, (own, weights) in axes.items() if max(weights) > 0}


OFFICIAL = official_rules(GEMINI_PRO, max_output_tokens=8192, citations="numbered")
BENCHMARK = Benchmark(
    name="researchrubrics",
    title="ResearchRubrics",
    answer_format=AnswerFormat.LONG,
    load=load,
    grader=lambda rules: Grader(rules, grade, "compliance", prompts=("researchrubrics",)),
    official=OFFICIAL,
    paper=paper_rules(OFFICIAL),
    is_long=True,
    hub="hf:ScaleAI/researchrubrics/processed_data.jsonl",
    ids="sample_id of the data file",
)
