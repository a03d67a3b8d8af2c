"""SimpleQA: one letter per answer, A correct, B incorrect, C not attempted, and the rates of the three.

The letter is the first capital A, B or C anywhere in the reply, so that INCORRECT and CORRECT read as C and
"Answer: C" reads as A. No such letter, as in a refused request, is C.

SimpleQA files: CSV with metadata, problem and answer. Rows have no id: their number from 0 names them.

SimpleQA: one question for each answer, one letter back.

Recorded SimpleQA cases.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from rubricem_agent.evals.base import Benchmark, CaseInput, Example, Gold, RecordedInput, Rules, ScoringError, Unit
from rubricem_agent.evals.files import Expectation, FileRow, assemble, csv_rows, read_row
from rubricem_agent.evals.grading import Case, Grade, GradedExample, Grading, GradingQuestion, JudgePrompts, Totals
from rubricem_env.domain.base import Text

Letter = Literal["A", "B", "C"]

_ALONE = re.compile(r"\b([ABC])\b")


class SimpleQARates(NamedTuple):
    """Shares of all answers, the accuracy among the attempted, and F1; each 0 where its denominator is 0."""

    correct: float
    incorrect: float
    not_attempted: float
    accuracy_given_attempted: float
    f1: float

    @property
    def given_attempted(self) -> float:
        """The official sum of the two rates, which differs from 1 - not_attempted in the last bits."""
        return self.correct + self.incorrect


def parse_letter(reply: str) -> Letter:
    """The official parse."""
    return _as_letter(next((character for character in reply if character in "ABC"), "C"))


def parse_standalone_letter(reply: str) -> Letter:
    """The strict parse: the first A, B or C that stands as a word; C where there is none."""
    match = _ALONE.search(reply)
    return _as_letter(match.group(1) if match else "C")


def strict_letter(reply: str) -> Letter:
    """Strict mode: as the strict parse, but a reply without a letter counts as the worst case, incorrect."""
    return parse_standalone_letter(reply) if _ALONE.search(reply) else "B"


def rates(letters: Sequence[Letter]) -> SimpleQARates:
    """The rates over all answers. The score printed in READMEs and papers is `correct`."""
    if not letters:
        # The official code maps over the answers with a pool of min(threads, answers) workers: 0 is refused.
        raise ScoringError("ValueError", "there is no answer to score")
    correct, incorrect, not_attempted = (letters.count(letter) / len(letters) for letter in "ABC")
    attempted = correct + incorrect
    accuracy = correct / attempted if attempted > 0 else 0.0
    f1 = 2 * accuracy * correct / (accuracy + correct) if accuracy + correct > 0 else 0.0
    return SimpleQARates(correct, incorrect, not_attempted, accuracy, f1)


def official_metrics(letters: Sequence[Letter]) -> dict[str, float]:
    """Mean and population standard deviation of each indicator, by the official names. `score` is is_correct again."""
    if not letters:
        raise ScoringError("ValueError", "there is no answer to score")
    names = {"is_correct": "A", "is_incorrect": "B", "is_not_attempted": "C", "score": "A"}
    metrics: dict[str, float] = {}
    for name, letter in names.items():
        indicator = np.asarray([given == letter for given in letters])
        metrics[name] = float(np.mean(indicator))
        metrics[f"{name}:std"] = float(np.std(indicator))
    return metrics


def _as_letter(character: str) -> Letter:
    return "A" if character == "A" else "B" if character == "B" else "C"


OFFICIAL = Expectation(rows=4326, sha256="feee3f7e7db3617e94e8fcf1977b756ec420ef8568f4e0fcbbe0e92e9d5fc032")
COLUMNS = ("metadata", "problem", "answer")


class SimpleQAGold(Gold):
    """The answer, and the topic and sources as the file's own text."""

    answer: Text
    metadata: Text


class _Row(FileRow):
    problem: Text = Field(min_length=1)
    answer: Text = Field(min_length=1)
    metadata: Text


def load(path: Path, *, expect: Expectation = OFFICIAL) -> Benchmark[SimpleQAGold]:
    """Problems for the agent; answers, and metadata with the source urls, in the gold."""
    rows = [read_row(place, _Row) for place in csv_rows(path, columns=COLUMNS)]
    examples = [Example(id=str(number), prompt_text=row.problem) for number, row in enumerate(rows)]
    gold = [SimpleQAGold(id=str(number), answer=row.answer, metadata=row.metadata) for number, row in enumerate(rows)]
    return assemble(path, examples, gold=gold, expect=expect)


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
        ((reply,),) = yield (GradingQuestion("grade", prompt),)
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


class SimpleQAParseInput(RecordedInput):
    judge_text: Text


class SimpleQAAggregateInput(RecordedInput):
    judge_texts: tuple[Text, ...]

    def rates(self) -> SimpleQARates:
        return rates([parse_letter(text) for text in self.judge_texts])


def recorded_parse(case_input: CaseInput) -> object:
    letter = parse_letter(SimpleQAParseInput.read(case_input).judge_text)
    names = {"is_correct": "A", "is_incorrect": "B", "is_not_attempted": "C"}
    return {"letter": letter} | {name: letter == wanted for name, wanted in names.items()}


def recorded_parse_strictly(case_input: CaseInput) -> object:
    return parse_standalone_letter(SimpleQAParseInput.read(case_input).judge_text)


def recorded_parse_as_paper(case_input: CaseInput) -> object:
    return parse_letter(SimpleQAParseInput.read(case_input).judge_text)


def recorded_aggregate(case_input: CaseInput) -> object:
    case = SimpleQAAggregateInput.read(case_input)
    rates = case.rates()
    metrics = official_metrics([parse_letter(text) for text in case.judge_texts])
    return {
        "score_mean": metrics.pop("score"),
        "metrics": metrics,
        "aggregate": {
            "is_correct": rates.correct,
            "is_incorrect": rates.incorrect,
            "is_not_attempted": rates.not_attempted,
            "is_given_attempted": rates.given_attempted,
            "accuracy_given_attempted": rates.accuracy_given_attempted,
        },
        "output": {"accuracy_given_attempted": rates.accuracy_given_attempted, "f1": rates.f1},
    }


def recorded_aggregate_as_inspect(case_input: CaseInput) -> object:
    rates = SimpleQAAggregateInput.read(case_input).rates()
    return {
        "correct": rates.correct,
        "not_attempted": rates.not_attempted,
        "incorrect": rates.incorrect,
        "attempted": 1 - rates.not_attempted,
        "correct_given_attempted": rates.accuracy_given_attempted,
        "f_score": rates.f1,
    }


UNITS = {
    "parse": Unit(
        recorded_parse,
        {
            "inspect_evals_original_strict": recorded_parse_strictly,
            "inspect_evals_original_paper": recorded_parse_as_paper,
        },
    ),
    "aggregate": Unit(recorded_aggregate, {"inspect_evals_simpleqa_metric": recorded_aggregate_as_inspect}),
}
