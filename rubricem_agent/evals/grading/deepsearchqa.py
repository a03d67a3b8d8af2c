"""DeepSearchQA: the judge splits the gold answer, says which parts are there, and lists what is in excess."""

from collections.abc import Sequence

from rubricem_agent.evals.deepsearchqa import Exclusion, Rating, rate
from rubricem_agent.evals.deepsearchqa_aggregate import Outcome, macro_scores, official_summary
from rubricem_agent.evals.errors import ScoringError
from rubricem_agent.evals.files.deepsearchqa import DeepSearchQAGold
from rubricem_agent.evals.grading.base import GradedExample, Totals
from rubricem_agent.evals.grading.grade import Case, Grade
from rubricem_agent.evals.grading.prompts import JudgePrompts
from rubricem_agent.evals.grading.question import Grading, Question
from rubricem_agent.evals.modes import Rules

STOPPED = "the rating is JSON but no object"


class DeepSearchQAGrader:
    """Official and strict DeepSearchQA. The headline is the rate of fully correct answers (the paper's "exact match")."""

    is_binary = True

    def __init__(self, rules: Rules, prompts: JudgePrompts) -> None:
        self._rules = rules
        self._prompts = prompts

    @classmethod
    def for_rules(cls, rules: Rules) -> "DeepSearchQAGrader":
        return cls(rules, JudgePrompts.read("deepsearchqa"))

    @property
    def prompt_hash(self) -> str:
        return self._prompts.hash

    def grade(self, case: Case) -> Grading:
        """One question; an empty answer is excluded without one."""
        gold = case.gold_as(DeepSearchQAGold)
        if case.answer.is_empty:
            return self._excluded(Exclusion.EMPTY_RESPONSE)
        prompt = self._prompts.user(
            "deepsearchqa",
            question=case.example.prompt_text,
            gold=gold.answer,
            answer_type=gold.answer_type,
            response=case.answer.text,
        )
        ((reply,),) = yield (Question("rating", prompt),)
        try:
            outcome = rate(case.answer.text, reply)
        except ScoringError:
            return self._excluded(STOPPED)
        return self._excluded(outcome) if isinstance(outcome, Exclusion) else _graded(outcome)

    def total(self, graded: Sequence[GradedExample]) -> Totals:
        """The three rates and the macro means, and the texts of the official project rating."""
        outcomes = [_outcome(one.grade) for one in graded]
        ratings = [outcome for outcome in outcomes if isinstance(outcome, Rating)]
        # Officially the denominator is what was evaluated; strictly it is every answer.
        size = len(outcomes) if self._rules.is_strict else len(ratings)
        if not size:
            return Totals("fully_correct", {"fully_correct": None})
        macro = macro_scores(outcomes)
        share = len(ratings) / size
        means = {name: value * share for name, value in macro._asdict().items()} if macro else {"f1_score": 0.0}
        counts = {
            "fully_correct": sum(rating.is_fully_correct for rating in ratings),
            "correct_with_excessive": sum(rating.is_correct_with_excessive for rating in ratings),
            "fully_incorrect": sum(rating.is_fully_incorrect for rating in ratings) + size - len(ratings),
        }
        texts = {name: str(value) for name, value in official_summary(outcomes).items()}
        return Totals("fully_correct", {**{n: c / size for n, c in counts.items()}, **means}, texts)

    def _excluded(self, reason: str) -> Grade:
        score = 0.0 if self._rules.is_strict else None
        unreadable = int(reason in (Exclusion.INVALID_RATER, Exclusion.EMPTY_RATER, STOPPED))
        return Grade(score, 0.0, str(reason), unreadable=unreadable)


def _graded(rating: Rating) -> Grade:
    correct = float(rating.is_fully_correct)
    label = f"{rating.found}/{rating.expected}+{rating.excessive}"
    return Grade(correct, correct, labels={"rating": label}, record=rating._asdict())


def _outcome(grade: Grade) -> Outcome:
    if not grade.record:
        return Exclusion(grade.excluded) if grade.excluded in list(Exclusion) else None
    return Rating(*(count for name in Rating._fields if isinstance(count := grade.record[name], int)))
