"""WebWalkerQA with its official judge: a grade after an explanation, overall and in six cells."""

from collections.abc import Sequence

from rubricem_agent.evals.files.webwalkerqa import WebWalkerGold
from rubricem_agent.evals.grading.base import GradedExample, Totals, mean_metrics, mean_of, scores_of
from rubricem_agent.evals.grading.grade import Case, Grade
from rubricem_agent.evals.grading.prompts import JudgePrompts
from rubricem_agent.evals.grading.question import Grading, Question
from rubricem_agent.evals.grading.short_answers import gold_answers
from rubricem_agent.evals.modes import Rules
from rubricem_agent.evals.webwalkerqa import DIFFICULTIES, TYPES, parse_grade, score_grade


class WebWalkerGrader:
    """Official and strict WebWalkerQA: what cannot be read leaves the mean officially, and is wrong strictly."""

    is_binary = True

    def __init__(self, rules: Rules, prompts: JudgePrompts) -> None:
        self._rules = rules
        self._prompts = prompts

    @classmethod
    def for_rules(cls, rules: Rules) -> "WebWalkerGrader":
        return cls(rules, JudgePrompts.read("webwalkerqa"))

    @property
    def prompt_hash(self) -> str:
        return self._prompts.hash

    def grade(self, case: Case) -> Grading:
        """One question; an empty prediction is not asked about."""
        if case.answer.is_empty:
            return self._without_verdict("there is no prediction", unreadable=0)
        prompt = self._prompts.user(
            "webwalkerqa",
            question=case.example.prompt_text,
            gold=GOLD_JOINT.join(gold_answers(case)),
            answer=case.answer.text,
        )
        ((reply,),) = yield (Question("grade", prompt),)
        score = score_grade(parse_grade(reply))
        if score is None:
            return self._without_verdict("the judge gave no grade", unreadable=1)
        return Grade(float(score), float(score), metrics=_cell(case, score), labels={"grade": str(score)})

    def total(self, graded: Sequence[GradedExample]) -> Totals:
        """Accuracy overall and per cell; an empty cell is None."""
        cells: dict[str, float | None] = {f"{kind}_{level}": None for kind in TYPES for level in DIFFICULTIES}
        return Totals("overall", {"overall": mean_of(scores_of(graded)), **cells, **mean_metrics(graded)})

    def _without_verdict(self, reason: str, *, unreadable: int) -> Grade:
        return Grade(0.0 if self._rules.is_strict else None, 0.0, reason, unreadable=unreadable)


GOLD_JOINT = " / "


def _cell(case: Case, score: int) -> dict[str, float]:
    if not isinstance(case.gold, WebWalkerGold):
        return {}
    return {f"{case.gold.info.type}_{case.gold.info.difficulty_level}": float(score)}
