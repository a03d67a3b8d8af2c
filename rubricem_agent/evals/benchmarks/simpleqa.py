"""SimpleQA: one letter per answer (correct, incorrect, not attempted), and their rates.

The letter is the first capital A, B or C anywhere in the reply, so that INCORRECT and CORRECT read as C and
"Answer: C" reads as A. Prose without a verdict leaves the mean. Files are CSV; rows have no id.
"""

import re
from collections.abc import Sequence
from functools import partial

from pydantic import Field

from rubricem_agent.evals.benchmark import Benchmark
from rubricem_agent.evals.dataset import Gold
from rubricem_agent.evals.files import csv_rows, rows_loader
from rubricem_agent.evals.grading import Case, Grade, Grader, Grading, Totals
from rubricem_agent.evals.rules import GPT, SHORT_GUIDANCE, drtulu_rules, official_rules
from rubricem_agent.evals.scoring_error import ScoringError
from rubricem_env.domain.base import Text
from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_records.evaluations.rules import Rules

_ALONE = re.compile(r"\b([ABC])\b")
_VERDICT = re.compile(r"\b([ABC]|CORRECT|INCORRECT|NOT[ _]ATTEMPTED)\b")
"""The letter that the prompt wants, or the grade spelled out. The official parse finds a letter in other prose too."""


class SimpleQAGold(Gold):
    """A row of the file; the metadata have the topic and the source urls."""

    problem: Text = Field(min_length=1)
    answer: Text = Field(min_length=1)
    metadata: Text


load = rows_loader(
    "simpleqa",
    partial(csv_rows, columns=("metadata", "problem", "answer")),
    SimpleQAGold,
    prompt=lambda row: row.problem,
    is_numbered=True,
    num_rows=4326,
    sha256="feee3f7e7db3617e94e8fcf1977b756ec420ef8568f4e0fcbbe0e92e9d5fc032",
)


def parse_letter(judge_text: Text) -> str:
    """The official parse."""
    return next((character for character in judge_text if character in "ABC"), "C")


def parse_standalone_letter(judge_text: Text) -> str:
    """The strict parse: the first A, B or C that is a word; C where there is none."""
    match = _ALONE.search(judge_text)
    return match.group(1) if match else "C"


def strict_letter(reply: str) -> str:
    """Strict mode: as the strict parse, but a reply without a letter counts as the worst case, incorrect."""
    return parse_standalone_letter(reply) if _ALONE.search(reply) else "B"


def rates(letters: Sequence[str]) -> dict[str, float]:
    """Shares of all answers, the accuracy among the attempted, and F1; each 0 where its denominator is 0.

    The score printed in READMEs and papers is `correct`.
    """
    if not letters:
        # The official code maps over the answers with a pool of min(threads, answers) workers: 0 is refused.
        raise ScoringError("ValueError", "there is no answer to score")
    correct, incorrect, not_attempted = (letters.count(letter) / len(letters) for letter in "ABC")
    attempted = correct + incorrect
    accuracy = correct / attempted if attempted > 0 else 0.0
    return {
        "correct": correct,
        "incorrect": incorrect,
        "not_attempted": not_attempted,
        "accuracy_given_attempted": accuracy,
        "f1": 2 * accuracy * correct / (accuracy + correct) if accuracy + correct > 0 else 0.0,
    }


def grade(case: Case, grader: Grader) -> Grading:
    """One question. An empty answer is judged as well, as officially; strict mode reads standalone letters only.

    Prose without a verdict, such as "An error occurred", has no grade; officially it would be correct, by its first A.
    """
    gold = case.gold_as(SimpleQAGold).answer
    question = grader.question(
        "grade", "simpleqa", question=case.example.prompt_text, gold=gold, answer=case.answer.text
    )
    ((reply,),) = yield (question,)
    is_readable = _VERDICT.search(reply) is not None
    if not is_readable and not grader.rules.is_strict:
        return grader.excluded("the judge gave no letter", unreadable=1)
    letter = strict_letter(reply) if grader.rules.is_strict else parse_letter(reply)
    score = float(letter == "A")
    worst = float(strict_letter(reply) == "A")
    return Grade(score, worst, labels={"grade": letter}, unreadable=int(not is_readable))


def total(grades: Sequence[Grade], rules: Rules) -> Totals:
    """The rates."""
    letters = [grade.labels["grade"] for grade in grades if grade.labels]
    return rates(letters) if letters else {"correct": None}


OFFICIAL = official_rules(GPT, temperature=0.5, tries=1, sampling="simple_evals")
BENCHMARK = Benchmark(
    name="simpleqa",
    title="SimpleQA",
    answer_format=AnswerFormat.EXACT,
    load=load,
    grader=lambda rules: Grader(rules, grade, "correct", total, prompts=("simpleqa",), is_binary=True),
    official=OFFICIAL,
    drtulu=drtulu_rules(OFFICIAL, max_output_tokens=1000),
    hub="openaipublic.blob.core.windows.net/simple-evals/simple_qa_test_set.csv",
    guidance=SHORT_GUIDANCE,
)
