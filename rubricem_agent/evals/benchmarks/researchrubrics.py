"""ResearchRubrics: weighted rubric items, each judged over the whole report.

compliance = sum(weight * score) / sum(positive weights). A negative item subtracts only when it is satisfied; the
range is (-inf, 1] and nothing is clipped. The macro mean over samples is the benchmark's number. Files are JSON Lines,
one task with its weighted rubric per line.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import BaseModel, Field, JsonValue

from rubricem_agent.evals.base import (
    GEMINI_PRO,
    OFFICIAL_SCORER,
    DataPaths,
    Dataset,
    Example,
    Gold,
    Replies,
    Unparsed,
    as_number,
    official_rules,
    parse_json,
    required,
)
from rubricem_agent.evals.files import FileRow, assemble, json_lines, read_row
from rubricem_agent.evals.grading import Benchmark, Case, Grade, Grader, Grading, GradingQuestion
from rubricem_env.domain.base import Text
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.trajectory import AnswerFormat

MAX_TRIES = 3

TERNARY = {"Satisfied": 1.0, "Partially Satisfied": 0.5, "Not Satisfied": 0.0}
BINARY = {"Satisfied": 1.0}
"""The binary reading of the older labels: a partial is not satisfied. Unknown labels count 0 in both."""


class WeightedCriterion(FileRow):
    """One rubric item: a negative weight marks something to avoid."""

    criterion: Text
    weight: float
    axis: Text


class ResearchRubricsGold(Gold):
    """A row of the file: the task, its rubric and its domain."""

    id: Text = Field(validation_alias="sample_id", min_length=1)
    prompt: Text = Field(min_length=1)
    rubrics: tuple[WeightedCriterion, ...]
    domain: Text = ""


def load(paths: DataPaths, *, any_version: bool = False) -> Dataset:
    """Prompts for the agent; rubrics in the gold."""
    path = required(paths.path, "the benchmark researchrubrics")
    rows = [read_row(line, ResearchRubricsGold) for line in json_lines(path)]
    examples = [Example(id=row.id, prompt_text=row.prompt) for row in rows]
    return assemble(path, examples, gold=rows, any_version=any_version, num_rows=101)


class ItemVerdict(NamedTuple):
    """The verdict on one item: `score` enters the arithmetic, `verdict` never does."""

    verdict: JsonValue
    score: float
    success: bool
    """Whether a reply could be read."""
    judge_calls: int


def parse_verdict(reply: str) -> tuple[JsonValue, float] | Unparsed:
    """Verdict and score of one reply. A fenced reply fails; score and confidence must both be numbers.

    A fraction is accepted: the official code turns `score` into a float without further checks.
    """
    parsed = parse_json(reply)
    if not isinstance(parsed, dict):
        return parsed if isinstance(parsed, Unparsed) else Unparsed("the reply is not a JSON object")
    score, confidence = as_number(parsed.get("score")), as_number(parsed.get("confidence"))
    if score is None or confidence is None:
        return Unparsed("score or confidence is not a number")
    return parsed.get("verdict"), score


def grade_item(replies: Sequence[str]) -> ItemVerdict:
    """Three tries; then the item is an error with score 0 that stays in the sum: on a negative item that helps the model."""
    judge = Replies(replies)
    parsed = judge.first_parsed(parse_verdict, tries=MAX_TRIES)
    if isinstance(parsed, Unparsed):
        return ItemVerdict("Error", 0.0, False, judge.calls)
    return ItemVerdict(*parsed, True, judge.calls)


def compliance(scores: Sequence[float], weights: Sequence[float]) -> float:
    """The weighted score of one sample; 0 where no weight is positive."""
    numerator = sum(score * weight for score, weight in zip(scores, weights, strict=True))
    denominator = sum(weight for weight in weights if weight > 0)
    return numerator / denominator if denominator > 0 else 0.0


def strict_compliance(items: Sequence[ItemVerdict], weights: Sequence[float]) -> float:
    """Strict mode: an item without a readable verdict counts as the worst case, satisfied where the weight is negative."""
    worst = [item.score if item.success else float(weight < 0) for item, weight in zip(items, weights, strict=True)]
    return compliance(worst, weights)


def labelled_score(presence: Sequence[str], weights: Sequence[float], *, values: Mapping[str, float]) -> float:
    """The older scoring from labels, ternary or binary by the `values` given."""
    return compliance([values.get(label, 0.0) for label in presence], weights)


class ReplyShape(BaseModel):
    """The JSON that a judge is asked for; offered to servers as a schema and never relied upon."""

    verdict: str
    score: float
    confidence: float
    reasoning: str
    evidence_quotes: list[str]
    missing_elements: list[str]


def grade(case: Case, grader: Grader) -> Grading:
    """One round: every criterion. An empty report writes no rows officially, so that it leaves the mean."""
    if case.answer.is_empty:
        return grader.excluded("the report is empty")
    rubrics = case.gold_as(ResearchRubricsGold).rubrics
    replies = yield tuple(
        GradingQuestion(
            f"item-{number}",
            grader.user_prompt(
                "researchrubrics",
                report=case.answer.text,
                criterion=item.criterion,
                axis=item.axis,
                weight=str(item.weight),
            ),
            system=grader.system_prompt("researchrubrics"),
            tries=grader.rules.tries,
            accepts=lambda reply: not isinstance(parse_verdict(reply), Unparsed),
            schema=ReplyShape,
        )
        for number, item in enumerate(rubrics)
    )
    items = [grade_item(each) for each in replies]
    weights = [item.weight for item in rubrics]
    worst = strict_compliance(items, weights)
    return Grade(
        worst if grader.rules.is_strict else compliance([item.score for item in items], weights),
        worst,
        metrics=_by_axis(rubrics, items),
        labels={f"item-{number}": str(item.score) for number, item in enumerate(items) if item.success},
        unreadable=sum(item.judge_calls - item.success for item in items),
    )


def _by_axis(rubrics: Sequence[WeightedCriterion], items: Sequence[ItemVerdict]) -> dict[str, float]:
    """Compliance by axis. Axes without a positive weight have nothing to divide by and are left out."""
    axes: dict[str, tuple[list[float], list[float]]] = {}
    for criterion, item in zip(rubrics, items, strict=True):
        scores, weights = axes.setdefault(f"axis:{criterion.axis}", ([], []))
        scores.append(item.score)
        weights.append(criterion.weight)
    return {axis: compliance(s, w) for axis, (s, w) in axes.items() if any(weight > 0 for weight in w)}


class RecordedItem(FileRow):
    """A rubric item of a recorded case, with its score where it was judged."""

    weight: float = Field(allow_inf_nan=True)
    score: float | None = Field(default=None, allow_inf_nan=True)


def recorded_task(rubrics: tuple[RecordedItem, ...], judge_replies: tuple[tuple[Text, ...], ...]) -> object:
    if len(judge_replies) != len(rubrics):
        raise FileFormatError(f"judge_replies: {len(judge_replies)} lists of replies for {len(rubrics)} rubric items")
    items = [grade_item(replies) for replies in judge_replies]
    scores = [item.score for item in items]
    return {
        "verdicts": [item.verdict for item in items],
        "scores": scores,
        "success": [item.success for item in items],
        "compliance_score": compliance(scores, [rubric.weight for rubric in rubrics]),
        "judge_calls_per_item": [item.judge_calls for item in items],
    }


def recorded_labels(weights: tuple[float, ...], presence: tuple[Text, ...]) -> object:
    return {
        "ternary": labelled_score(presence, weights, values=TERNARY),
        "binary": labelled_score(presence, weights, values=BINARY),
    }


def recorded_aggregate(samples: tuple[tuple[RecordedItem, ...], ...]) -> object:
    """The unweighted mean over samples; 0 for none. An empty report writes no rows and is officially no sample."""
    if any(row.score is None for rows in samples for row in rows):
        raise FileFormatError("samples: a row has no score")
    scores = [compliance([row.score or 0.0 for row in rows], [row.weight for row in rows]) for rows in samples if rows]
    average = sum(scores) / len(scores) if scores else 0.0
    return {
        "total_samples": len(scores),
        "average_printed_4dp": f"{average:.4f}",
        "average_unrounded_same_formula": average,
    }


BENCHMARK = Benchmark(
    name="researchrubrics",
    title="ResearchRubrics",
    answer_format=AnswerFormat.LONG,
    load=load,
    grader=lambda rules: Grader(rules, grade, "compliance", prompts=("researchrubrics",)),
    official=official_rules(GEMINI_PRO, max_output_tokens=8192, citations="numbered"),
    units={
        "researchrubrics": {
            "task_binary": {OFFICIAL_SCORER: recorded_task},
            "ternary_vs_binary": {OFFICIAL_SCORER: recorded_labels},
            "aggregate": {OFFICIAL_SCORER: recorded_aggregate},
        }
    },
    is_long=True,
    hub="hf:ScaleAI/researchrubrics/processed_data.jsonl",
    ids="sample_id of the data file",
)
