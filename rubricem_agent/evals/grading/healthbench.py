"""HealthBench: one question for each rubric item, asked about the conversation with the answer as its last turn."""

from collections.abc import Sequence

import numpy as np

from rubricem_agent.evals.errors import ScoringError
from rubricem_agent.evals.example import Turn
from rubricem_agent.evals.files.healthbench import HealthBenchGold
from rubricem_agent.evals.grading.base import GradedExample, Totals
from rubricem_agent.evals.grading.grade import Case, Grade
from rubricem_agent.evals.grading.prompts import JudgePrompts
from rubricem_agent.evals.grading.question import Grading, Question, Replies
from rubricem_agent.evals.healthbench import RubricItem, parse_verdict, points_share, score_example, strict_verdict
from rubricem_agent.evals.healthbench_aggregate import drtulu_aggregate, official_aggregate
from rubricem_agent.evals.modes import Mode, Rules

BOOTSTRAP_SEED = 0
"""The official bootstrap is unseeded; ours of the same form is seeded, so that a report can be made again."""


class HealthBenchGrader:
    """Official, predecessor's and strict HealthBench."""

    is_binary = False

    def __init__(self, rules: Rules, prompts: JudgePrompts) -> None:
        self._rules = rules
        self._prompts = prompts

    @classmethod
    def for_rules(cls, rules: Rules) -> "HealthBenchGrader":
        return cls(rules, JudgePrompts.read("healthbench"))

    @property
    def prompt_hash(self) -> str:
        return self._prompts.hash

    def grade(self, case: Case) -> Grading:
        """One round: every item."""
        gold = case.gold_as(HealthBenchGold)
        conversation = self._conversation(case)
        replies = yield tuple(
            self._question(number, item, conversation=conversation) for number, item in enumerate(gold.rubrics)
        )
        return self._grade(gold, replies)

    def total(self, graded: Sequence[GradedExample]) -> Totals:
        """The official means, clipped after averaging; the predecessor's are not clipped."""
        examples = [dict(one.grade.metrics) for one in graded if one.grade.score is not None]
        if self._rules.mode is Mode.DRTULU:
            totals = drtulu_aggregate(examples)
        else:
            totals = official_aggregate(examples, rng=np.random.RandomState(BOOTSTRAP_SEED))
        return Totals("overall_score", {"overall_score": totals.score, **totals.metrics})

    def _conversation(self, case: Case) -> str:
        # The predecessor's judge sees the conversation flattened into one user turn.
        asked = (Turn(role="user", content=case.example.prompt_text),)
        turns = asked if self._rules.mode is Mode.DRTULU else case.example.turns or asked
        said = [f"{turn.role}: {turn.content}" for turn in turns]
        return "\n\n".join((*said, f"assistant: {case.answer.text}"))

    def _question(self, number: int, item: RubricItem, *, conversation: str) -> Question:
        return Question(
            key=f"item-{number}",
            prompt=self._prompts.user("healthbench", conversation=conversation, criterion=item.for_judge()),
            system=self._prompts.system("healthbench"),
            tries=self._rules.tries,
            accepts=is_verdict,
        )

    def _grade(self, gold: HealthBenchGold, replies: Sequence[Replies]) -> Grade:
        worst_items = [strict_verdict(r[-1:], points=i.points) for i, r in zip(gold.rubrics, replies, strict=True)]
        worst = points_share(zip(gold.rubrics, worst_items, strict=True)) or 0.0
        unreadable = sum(len(each) - is_verdict(each[-1]) for each in replies)
        labels = {f"item-{n}": str(met) for n, met in enumerate(worst_items) if is_verdict(replies[n][-1])}
        try:
            scored = score_example(gold.rubrics, gold.example_tags, replies=[each[-1:] for each in replies])
        except ScoringError as refusal:
            if not self._rules.is_strict or points_share((i, True) for i in gold.rubrics) is None:
                return Grade(None, worst, refusal.reason, labels=labels, unreadable=unreadable)
            return Grade(worst, worst, metrics={"overall_score": worst}, labels=labels, unreadable=unreadable)
        metrics = scored.metrics
        return Grade(metrics["overall_score"], worst, metrics=metrics, labels=labels, unreadable=unreadable)


def is_verdict(reply: str) -> bool:
    """Whether the official parse reads a verdict; where it would stop the run, ours asks again."""
    try:
        return isinstance(parse_verdict(reply), bool)
    except ScoringError:
        return False
