"""SimpleQA: one letter per answer (correct, incorrect, not attempted), and their rates.

A reply is one letter and nothing else; any other leaves the mean, and strictly counts as incorrect. The official parse
takes the first capital A, B or C anywhere in it, so that INCORRECT and CORRECT read as C, "Answer: C" and "An error
occurred" as A. Files are CSV; rows have no id.
"""

import re
from collections.abc import Sequence
from functools import partial

from pydantic import Field

from rubricem_agent.evals.benchmark import OR_FROM_MEMORY, Benchmark
from rubricem_agent.evals.dataset import Gold
from rubricem_agent.evals.files import csv_rows, rows_loader
from rubricem_agent.evals.grading import Asking, Case, Grade, Grader, Totals
from rubricem_agent.evals.reply_parsing import NO_VERDICT, Unparsed
from rubricem_agent.evals.rules import GPT, SHORT_GUIDANCE, drtulu_rules, official_rules, paper_rules
from rubricem_agent.evals.scoring_error import ScoringError
from rubricem_env.domain.base import Text
from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_records.evaluations.rules import Rules

_ALONE = re.compile(r"\b([ABC])\b")


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


def read_letter(reply: str) -> str | Unparsed:
    """The reply as one letter; quotation marks, emphasis and a full stop around it do not count."""
    letter = reply.strip("\"'`*.() \t\r\n")
    return letter if letter in ("A", "B", "C") else NO_VERDICT


def parse_letter(judge_text: Text) -> str:
    """The official parse; C where there is no such letter."""
    return next((character for character in judge_text if character in "ABC"), "C")


def parse_standalone_letter(judge_text: Text) -> str:
    """The parse of another harness: the first A, B or C that is a word; C where there is none."""
    match = _ALONE.search(judge_text)
    return match.group(1) if match else "C"


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


def grade(case: Case, grader: Grader) -> Asking[Grade]:
    """One question. An empty answer is judged as well, as officially."""
    gold = case.gold_as(SimpleQAGold).answer
    (letter,) = yield (
        grader.question(
            "grade",
            "simpleqa",
            parse=read_letter,
            official_parse=parse_letter,
            question=case.example.prompt_text,
            gold=gold,
            answer=case.answer.text,
        ),
    )
    if isinstance(letter, Unparsed):
        labels = {"grade": "B"} if grader.rules.is_strict else {}
        return grader.excluded("the judge gave no letter")._replace(labels=labels)
    score = float(letter == "A")
    return Grade(score, score, labels={"grade": letter})


def total(grades: Sequence[Grade], rules: Rules) -> Totals:
    """The rates."""
    letters = [grade.labels["grade"] for grade in grades if grade.labels]
    return rates(letters) if letters else {"correct": None}


OFFICIAL = official_rules(GPT, temperature=0.5, tries=1, sampling="simple_evals")
DRTULU = drtulu_rules(OFFICIAL, max_output_tokens=1000)
BENCHMARK = Benchmark(
    name="simpleqa",
    title="SimpleQA",
    answer_format=AnswerFormat.EXACT,
    load=load,
    grader=lambda rules: Grader(rules, grade, "correct", total, prompts=("simpleqa",), is_binary=True),
    official=OFFICIAL,
    drtulu=DRTULU,
    paper=paper_rules(DRTULU, size=1000),
    searches=OR_FROM_MEMORY,
    hub="openaipublic.blob.core.windows.net/simple-evals/simple_qa_test_set.csv",
    guidance=SHORT_GUIDANCE,
)
