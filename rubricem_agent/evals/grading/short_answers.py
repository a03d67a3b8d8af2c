"""2WikiMultihopQA and WebWalkerQA: gold answers against a prediction, by string or by judge."""

from collections.abc import Sequence

from rubricem_agent.evals.files.drtulu_short_form import ShortFormGold
from rubricem_agent.evals.files.twowiki import TwoWikiGold
from rubricem_agent.evals.files.webwalkerqa import WebWalkerGold
from rubricem_agent.evals.grading.base import GradedExample, Totals, mean_metrics, mean_of, scores_of
from rubricem_agent.evals.grading.grade import Case, Grade
from rubricem_agent.evals.grading.prompts import JudgePrompts
from rubricem_agent.evals.grading.question import Grading, Question
from rubricem_agent.evals.modes import Rules
from rubricem_agent.evals.twowiki import drtulu_exact, drtulu_f1, judge_says_correct, score_answer

GOLD_SEPARATOR = " / "


class ExactMatchGrader:
    """2WikiMultihopQA as its own scorer has it: exact match and token F1, no judge. The headline is exact match."""

    is_binary = True
    prompt_hash = ""

    def grade(self, case: Case) -> Grading:
        """Asks nothing."""
        score = score_answer(case.answer.text, gold_answers(case))
        yield ()
        return Grade(score.em, score.em, metrics=score._asdict())

    def total(self, graded: Sequence[GradedExample]) -> Totals:
        return Totals("em", mean_metrics(graded) or {"em": None})


class YesNoGrader:
    """The predecessor's judge for short answers: the first "correct: yes|no" of the reply decides, none is wrong."""

    is_binary = True

    def __init__(self, rules: Rules, prompts: JudgePrompts) -> None:
        self._rules = rules
        self._prompts = prompts

    @classmethod
    def for_rules(cls, rules: Rules) -> "YesNoGrader":
        return cls(rules, JudgePrompts.read("short_answer"))

    @property
    def prompt_hash(self) -> str:
        return self._prompts.hash

    def grade(self, case: Case) -> Grading:
        """One question; the predecessor's own exact match and F1 stand beside the verdict."""
        golds = gold_answers(case)
        prompt = self._prompts.user(
            "short_answer",
            question=case.example.prompt_text,
            response=case.answer.text,
            gold=GOLD_SEPARATOR.join(golds),
        )
        ((reply,),) = yield (Question("grade", prompt),)
        correct = float(judge_says_correct(reply))
        strings = {"em": float(drtulu_exact(case.answer.text, golds)), "f1": drtulu_f1(case.answer.text, golds)}
        return Grade(
            correct,
            correct,
            metrics=strings,
            labels={"grade": "yes" if correct else "no"},
            unreadable=int("correct:" not in reply.lower()),
        )

    def total(self, graded: Sequence[GradedExample]) -> Totals:
        return Totals("accuracy", {"accuracy": mean_of(scores_of(graded)), **mean_metrics(graded)})


def gold_answers(case: Case) -> tuple[str, ...]:
    """Every answer that counts, from whichever file the benchmark was loaded."""
    if isinstance(case.gold, TwoWikiGold):
        return (case.gold.question.answer,)
    if isinstance(case.gold, WebWalkerGold):
        return (case.gold.answer,)
    return case.gold_as(ShortFormGold).answers
