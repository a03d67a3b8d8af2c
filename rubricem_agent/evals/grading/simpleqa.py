"""SimpleQA: one question for each answer, one letter back."""

from collections.abc import Sequence

from rubricem_agent.evals.files.simpleqa import SimpleQAGold
from rubricem_agent.evals.grading.base import GradedExample, Totals
from rubricem_agent.evals.grading.grade import Case, Grade
from rubricem_agent.evals.grading.prompts import JudgePrompts
from rubricem_agent.evals.grading.question import Grading, Question
from rubricem_agent.evals.modes import Rules
from rubricem_agent.evals.simpleqa import Letter, parse_letter, rates, strict_letter


class SimpleQAGrader:
    """SimpleQA; the strict mode reads a letter only where it stands alone."""

    is_binary = True

    def __init__(self, rules: Rules, prompts: JudgePrompts) -> None:
        self._rules = rules
        self._prompts = prompts

    @classmethod
    def for_rules(cls, rules: Rules) -> "SimpleQAGrader":
        return cls(rules, JudgePrompts.read("simpleqa"))

    @property
    def prompt_hash(self) -> str:
        return self._prompts.hash

    def grade(self, case: Case) -> Grading:
        """One question. An empty answer is judged as well, as officially."""
        gold = case.gold_as(SimpleQAGold)
        prompt = self._prompts.user(
            "simpleqa", question=case.example.prompt_text, gold=gold.answer, answer=case.answer.text
        )
        ((reply,),) = yield (Question("grade", prompt),)
        letter = strict_letter(reply) if self._rules.is_strict else parse_letter(reply)
        return Grade(
            float(letter == "A"),
            float(strict_letter(reply) == "A"),
            labels={"grade": letter},
            unreadable=int(not any(character in "ABC" for character in reply)),
        )

    def total(self, graded: Sequence[GradedExample]) -> Totals:
        """The rates; the number of READMEs and papers is `correct`."""
        letters = [_letter(one.grade.labels["grade"]) for one in graded if one.grade.labels]
        return Totals("correct", rates(letters)._asdict() if letters else {"correct": None})


def _letter(label: str) -> Letter:
    return "A" if label == "A" else "B" if label == "B" else "C"
