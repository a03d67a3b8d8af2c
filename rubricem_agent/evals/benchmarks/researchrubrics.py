"""ResearchRubrics: weighted rubric items, each judged over the whole report.

compliance = sum(weight * score) / sum(positive weights). A negative item subtracts only when it is satisfied; the
range is (-inf, 1] and nothing is clipped. The macro mean over samples is the benchmark's number.

ResearchRubrics files: JSON Lines, one task with its weighted rubric per line.

ResearchRubrics: one question for each weighted criterion, asked about the whole report.

Recorded ResearchRubrics cases.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from rubricem_agent.evals.base import (
    Benchmark,
    CaseInput,
    Example,
    Gold,
    RecordedInput,
    Replies,
    Rules,
    Unit,
    Unparsed,
    parse_json,
)
from rubricem_agent.evals.files import Expectation, FileRow, assemble, json_lines, read_row
from rubricem_agent.evals.grading import (
    Case,
    Grade,
    GradedExample,
    Grading,
    GradingQuestion,
    JudgePrompts,
    JudgeReplies,
    Totals,
    mean_metrics,
    mean_of,
    scores_of,
)
from rubricem_env.domain.base import Frozen, Text

MAX_TRIES = 3
JUDGE_FAILED = "Error"

TERNARY = {"Satisfied": 1.0, "Partially Satisfied": 0.5, "Not Satisfied": 0.0}
BINARY = {"Satisfied": 1.0}
"""The binary reading of the older labels: a partial is not satisfied. Unknown labels count 0 in both."""


class ItemVerdict(NamedTuple):
    """What the judge said of one item. `score` enters the arithmetic, `verdict` never does."""

    verdict: JsonValue
    score: float


class ResearchRubricsVerdict(NamedTuple):
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


def grade_item(replies: Sequence[str]) -> ResearchRubricsVerdict:
    """Three tries; then the item is an error with score 0 that stays in the sum: on a negative item that helps the model."""
    judge = Replies(replies)
    while judge.calls < MAX_TRIES:
        reply = judge.ask()
        verdict = Unparsed("the request failed") if reply is None else parse_verdict(reply)
        if not isinstance(verdict, Unparsed):
            return ResearchRubricsVerdict(verdict.verdict, verdict.score, True, judge.calls)
    return ResearchRubricsVerdict(JUDGE_FAILED, 0.0, False, judge.calls)


def compliance(scores: Sequence[float], weights: Sequence[float]) -> float:
    """The weighted score of one sample; 0 where no weight is positive."""
    numerator = sum(score * weight for score, weight in zip(scores, weights, strict=True))
    denominator = sum(weight for weight in weights if weight > 0)
    return numerator / denominator if denominator > 0 else 0.0


def strict_compliance(items: Sequence[ResearchRubricsVerdict], weights: Sequence[float]) -> float:
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


OFFICIAL = Expectation(rows=101)


class WeightedCriterion(FileRow):
    """One rubric item: a negative weight marks something to avoid."""

    criterion: Text
    weight: float
    axis: Text


class ResearchRubricsGold(Gold):
    """The rubric of a task and its domain."""

    rubrics: tuple[WeightedCriterion, ...]
    domain: Text


class _Row(FileRow):
    sample_id: Text = Field(min_length=1)
    prompt: Text = Field(min_length=1)
    rubrics: tuple[WeightedCriterion, ...]
    domain: Text = ""


def load(path: Path, *, expect: Expectation = OFFICIAL) -> Benchmark[ResearchRubricsGold]:
    """Prompts for the agent; rubrics in the gold."""
    rows = [read_row(place, _Row) for place in json_lines(path)]
    gold = [ResearchRubricsGold(id=row.sample_id, rubrics=row.rubrics, domain=row.domain) for row in rows]
    return assemble(path, [Example(id=row.sample_id, prompt_text=row.prompt) for row in rows], gold=gold, expect=expect)


class ReplyShape(BaseModel):
    """What a judge is asked to reply; offered to servers as a JSON schema and never relied upon."""

    verdict: str
    score: float
    confidence: float
    reasoning: str
    evidence_quotes: list[str]
    missing_elements: list[str]


class ResearchRubricsGrader:
    """Official and strict ResearchRubrics."""

    is_binary = False

    def __init__(self, rules: Rules, prompts: JudgePrompts) -> None:
        self._rules = rules
        self._prompts = prompts

    @classmethod
    def for_rules(cls, rules: Rules) -> "ResearchRubricsGrader":
        return cls(rules, JudgePrompts.read("researchrubrics"))

    @property
    def prompt_hash(self) -> str:
        return self._prompts.hash

    def grade(self, case: Case) -> Grading:
        """One round: every criterion. An empty report writes no rows officially, so that it leaves the mean."""
        gold = case.gold_as(ResearchRubricsGold)
        if case.answer.is_empty:
            return Grade(0.0 if self._rules.is_strict else None, 0.0, "the report is empty")
        replies = yield tuple(
            self._question(number, item, report=case.answer.text) for number, item in enumerate(gold.rubrics)
        )
        return self._grade(gold, replies)

    def total(self, graded: Sequence[GradedExample]) -> Totals:
        """The macro mean over samples, never clipped; by axis the mean compliance of the samples that have the axis."""
        return Totals("compliance", {"compliance": mean_of(scores_of(graded)), **mean_metrics(graded)})

    def _question(self, number: int, item: WeightedCriterion, *, report: str) -> GradingQuestion:
        prompt = self._prompts.user(
            "researchrubrics", report=report, criterion=item.criterion, axis=item.axis, weight=str(item.weight)
        )
        return GradingQuestion(
            key=f"item-{number}",
            prompt=prompt,
            system=self._prompts.system("researchrubrics"),
            tries=self._rules.tries,
            accepts=lambda reply: not isinstance(parse_verdict(reply), Unparsed),
            schema=ReplyShape,
        )

    def _grade(self, gold: ResearchRubricsGold, replies: Sequence[JudgeReplies]) -> Grade:
        items = [grade_item(each) for each in replies]
        weights = [item.weight for item in gold.rubrics]
        worst = strict_compliance(items, weights)
        official = compliance([item.score for item in items], weights)
        labels = {f"item-{n}": str(item.score) for n, item in enumerate(items) if item.success}
        unreadable = sum(item.judge_calls - item.success for item in items)
        score = worst if self._rules.is_strict else official
        return Grade(score, worst, metrics=_by_axis(gold, items), labels=labels, unreadable=unreadable)


def _by_axis(gold: ResearchRubricsGold, items: Sequence[ResearchRubricsVerdict]) -> dict[str, float]:
    """Axes without a positive weight have nothing to divide by and are left out."""
    axes: dict[str, tuple[list[float], list[float]]] = {}
    for criterion, item in zip(gold.rubrics, items, strict=True):
        scores, weights = axes.setdefault(f"axis:{criterion.axis}", ([], []))
        scores.append(item.score)
        weights.append(criterion.weight)
    return {axis: compliance(s, w) for axis, (s, w) in axes.items() if any(weight > 0 for weight in w)}


class ResearchRubricsWeightedItem(Frozen):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=True)

    weight: float


class ResearchRubricsScoredItem(ResearchRubricsWeightedItem):
    score: float


class ResearchRubricsTaskInput(RecordedInput):
    rubrics: tuple[ResearchRubricsWeightedItem, ...]
    judge_replies: tuple[tuple[Text, ...], ...]

    @model_validator(mode="after")
    def _one_list_of_replies_per_item(self) -> Self:
        if len(self.judge_replies) != len(self.rubrics):
            raise ValueError(f"{len(self.judge_replies)} lists of replies for {len(self.rubrics)} rubric items")
        return self


class ResearchRubricsLabelInput(RecordedInput):
    weights: tuple[float, ...]
    presence: tuple[Text, ...]


class ResearchRubricsAggregateInput(RecordedInput):
    samples: tuple[tuple[ResearchRubricsScoredItem, ...], ...]


def recorded_score_task(case_input: CaseInput) -> object:
    case = ResearchRubricsTaskInput.read(case_input)
    items = [grade_item(replies) for replies in case.judge_replies]
    scores = [item.score for item in items]
    return {
        "verdicts": [item.verdict for item in items],
        "scores": scores,
        "success": [item.success for item in items],
        "compliance_score": compliance(scores, [rubric.weight for rubric in case.rubrics]),
        "judge_calls_per_item": [item.judge_calls for item in items],
    }


def recorded_score_labels(case_input: CaseInput) -> object:
    case = ResearchRubricsLabelInput.read(case_input)
    return {
        "ternary": labelled_score(case.presence, case.weights, values=TERNARY),
        "binary": labelled_score(case.presence, case.weights, values=BINARY),
    }


def recorded_aggregate(case_input: CaseInput) -> object:
    samples = ResearchRubricsAggregateInput.read(case_input).samples
    rows = [[ItemResult(item.score, item.weight) for item in sample] for sample in samples]
    total, average = macro_mean(rows)
    return {
        "total_samples": total,
        "average_printed_4dp": f"{average:.4f}",
        "average_unrounded_same_formula": average,
    }


UNITS = {
    "task_binary": Unit(recorded_score_task),
    "ternary_vs_binary": Unit(recorded_score_labels),
    "aggregate": Unit(recorded_aggregate),
}
