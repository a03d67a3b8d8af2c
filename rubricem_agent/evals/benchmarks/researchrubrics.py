"""ResearchRubrics: weighted rubric items, each judged over the whole report.

compliance = sum(weight * score) / sum(positive weights). A negative item subtracts only when it is satisfied; the
range is (-inf, 1] and nothing is clipped. The macro mean over samples is the benchmark's number. Files are JSON Lines,
one task with its weighted rubric per line.
"""

from collections.abc import Sequence

from pydantic import BaseModel, Field, JsonValue

from rubricem_agent.evals import base
from rubricem_agent.evals.files import FileRow, json_lines, rows_loader
from rubricem_agent.evals.grading import Benchmark, Case, Grade, Grader, Grading, ask, mean_of
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


class ResearchRubricsGold(base.Gold):
    """A row of the file: the task and its rubric."""

    id: Text = Field(validation_alias="sample_id", min_length=1)
    prompt: Text = Field(min_length=1)
    rubrics: tuple[WeightedCriterion, ...]


load = rows_loader("researchrubrics", json_lines, ResearchRubricsGold, prompt=lambda row: row.prompt, num_rows=101)


def parse_verdict(reply: str) -> tuple[JsonValue, float] | base.Unparsed:
    """Verdict and score of one reply; the verdict never enters the arithmetic.

    A fenced reply fails, and so does one whose score or confidence is not a number. A fraction is accepted: the official code turns `score` into a float without further checks.
    """
    parsed = base.parse_json(reply)
    if not isinstance(parsed, dict):
        return parsed if isinstance(parsed, base.Unparsed) else base.Unparsed("the reply is not a JSON object")
    score, confidence = base.as_number(parsed.get("score")), base.as_number(parsed.get("confidence"))
    if score is None or confidence is None:
        return base.Unparsed("score or confidence is not a number")
    return parsed.get("verdict"), score


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
            parse=parse_verdict,
            schema=ReplyShape,
            report=case.answer.text,
            criterion=item.criterion,
            axis=item.axis,
            weight=str(item.weight),
        )
        for number, item in enumerate(rubrics)
    )
    scores = [None if isinstance(verdict, base.Unparsed) else verdict[1] for verdict in verdicts]
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


class RecordedItem(FileRow):
    """A rubric item of a recorded case, with its score where it was judged."""

    weight: float = Field(allow_inf_nan=True)
    score: float | None = Field(default=None, allow_inf_nan=True)


def recorded_task(rubrics: tuple[RecordedItem, ...], judge_replies: tuple[tuple[Text, ...], ...]) -> object:
    """Three tries for each item, then its verdict is Error.

    Officially such an item stays in the sum with score 0: on a negative item that helps the model.
    """
    judges = base.judges_of(judge_replies, rubrics)
    items = [judge.first_parsed(parse_verdict, tries=MAX_TRIES) for judge in judges]
    scores = [None if isinstance(item, base.Unparsed) else item[1] for item in items]
    return {
        "verdicts": ["Error" if isinstance(item, base.Unparsed) else item[0] for item in items],
        "scores": [score or 0.0 for score in scores],
        "success": [score is not None for score in scores],
        "compliance_score": compliance(scores, [rubric.weight for rubric in rubrics]),
        "judge_calls_per_item": [judge.calls for judge in judges],
    }


def recorded_labels(weights: tuple[float, ...], presence: tuple[Text, ...]) -> object:
    trajectories = {"ternary": TERNARY, "binary": BINARY}
    return {
        name: compliance([values.get(label, 0.0) for label in presence], weights)
        for name, values in trajectories.items()
    }


def recorded_aggregate(samples: tuple[tuple[RecordedItem, ...], ...]) -> object:
    """The unweighted mean over samples; 0 for none. An empty report writes no rows and is officially no sample."""
    if any(row.score is None for rows in samples for row in rows):
        raise FileFormatError("samples: a row has no score")
    scores = [compliance([row.score for row in rows], [row.weight for row in rows]) for rows in samples if rows]
    average = mean_of(scores) or 0.0
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
    official=base.official_rules(base.GEMINI_PRO, max_output_tokens=8192, citations="numbered"),
    units={
        "researchrubrics": {
            "task_binary": {"official": recorded_task},
            "ternary_vs_binary": {"official": recorded_labels},
            "aggregate": {"official": recorded_aggregate},
        }
    },
    is_long=True,
    hub="hf:ScaleAI/researchrubrics/processed_data.jsonl",
    ids="sample_id of the data file",
)
