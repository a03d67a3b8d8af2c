"""ResearchRubrics: one question for each weighted criterion, asked about the whole report."""

from collections.abc import Sequence

from pydantic import BaseModel

from rubricem_agent.evals.files.researchrubrics import ResearchRubricsGold, WeightedCriterion
from rubricem_agent.evals.grading.base import GradedExample, Totals, mean_metrics, mean_of, scores_of
from rubricem_agent.evals.grading.grade import Case, Grade
from rubricem_agent.evals.grading.prompts import JudgePrompts
from rubricem_agent.evals.grading.question import Grading, Question, Replies
from rubricem_agent.evals.modes import Rules
from rubricem_agent.evals.reply_json import Unparsed
from rubricem_agent.evals.researchrubrics import GradedItem, compliance, grade_item, parse_verdict, strict_compliance


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

    def _question(self, number: int, item: WeightedCriterion, *, report: str) -> Question:
        prompt = self._prompts.user(
            "researchrubrics", report=report, criterion=item.criterion, axis=item.axis, weight=str(item.weight)
        )
        return Question(
            key=f"item-{number}",
            prompt=prompt,
            system=self._prompts.system("researchrubrics"),
            tries=self._rules.tries,
            accepts=lambda reply: not isinstance(parse_verdict(reply), Unparsed),
            schema=ReplyShape,
        )

    def _grade(self, gold: ResearchRubricsGold, replies: Sequence[Replies]) -> Grade:
        items = [grade_item(each) for each in replies]
        weights = [item.weight for item in gold.rubrics]
        worst = strict_compliance(items, weights)
        official = compliance([item.score for item in items], weights)
        labels = {f"item-{n}": str(item.score) for n, item in enumerate(items) if item.success}
        unreadable = sum(item.judge_calls - item.success for item in items)
        score = worst if self._rules.is_strict else official
        return Grade(score, worst, metrics=_by_axis(gold, items), labels=labels, unreadable=unreadable)


def _by_axis(gold: ResearchRubricsGold, items: Sequence[GradedItem]) -> dict[str, float]:
    """Axes without a positive weight have nothing to divide by and are left out."""
    axes: dict[str, tuple[list[float], list[float]]] = {}
    for criterion, item in zip(gold.rubrics, items, strict=True):
        scores, weights = axes.setdefault(f"axis:{criterion.axis}", ([], []))
        scores.append(item.score)
        weights.append(criterion.weight)
    return {axis: compliance(s, w) for axis, (s, w) in axes.items() if any(weight > 0 for weight in w)}
