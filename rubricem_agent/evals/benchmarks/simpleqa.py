"""SimpleQA: one letter per answer (A correct, B incorrect, C not attempted) and the rates of the three.

The letter is the first capital A, B or C anywhere in the reply, so that INCORRECT and CORRECT read as C and
"Answer: C" reads as A. Prose without a verdict leaves the mean. Files are CSV; rows have no id.
"""

import re
from collections.abc import Sequence
from functools import partial

import numpy as np
from pydantic import Field

from rubricem_agent.evals import base
from rubricem_agent.evals.files import csv_rows, rows_loader
from rubricem_agent.evals.grading import Benchmark, Case, Grade, Grader, Grading, Totals
from rubricem_env.domain.base import Text
from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_records.evaluation_rules import Rules

_ALONE = re.compile(r"\b([ABC])\b")
_VERDICT = re.compile(r"\b([ABC]|CORRECT|INCORRECT|NOT[ _]ATTEMPTED)\b")
"""What the judge was asked for, or spells out in its place; the official parse finds a letter in any other prose too."""
_MEANINGS = {"is_correct": "A", "is_incorrect": "B", "is_not_attempted": "C"}


class SimpleQAGold(base.Gold):
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
        raise base.ScoringError("ValueError", "there is no answer to score")
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


def official_metrics(letters: Sequence[str]) -> dict[str, float]:
    """Mean and population standard deviation of each indicator, by the official names. `score` is is_correct again."""
    if not letters:
        raise base.ScoringError("ValueError", "there is no answer to score")
    metrics: dict[str, float] = {}
    for name, letter in {**_MEANINGS, "score": "A"}.items():
        indicator = np.asarray([given == letter for given in letters])
        metrics[name] = float(np.mean(indicator))
        metrics[f"{name}:std"] = float(np.std(indicator))
    return metrics


def grade(case: Case, grader: Grader) -> Grading:
    """One question. An empty answer is judged as well, as officially; strict mode reads standalone letters only.

    Prose without a verdict, such as "An error occurred", has no grade; officially it would be correct, by its first A.
    """
    gold = case.gold_as(SimpleQAGold).answer
    asked = grader.question("grade", "simpleqa", question=case.example.prompt_text, gold=gold, answer=case.answer.text)
    ((reply,),) = yield (asked,)
    is_readable = _VERDICT.search(reply) is not None
    if not is_readable and not grader.rules.is_strict:
        return grader.excluded("the judge gave no letter", unreadable=1)
    letter = strict_letter(reply) if grader.rules.is_strict else parse_letter(reply)
    score, worst = float(letter == "A"), float(strict_letter(reply) == "A")
    return Grade(score, worst, labels={"grade": letter}, unreadable=int(not is_readable))


def total(grades: Sequence[Grade], rules: Rules) -> Totals:
    """The rates."""
    letters = [grade.labels["grade"] for grade in grades if grade.labels]
    return rates(letters) if letters else {"correct": None}


def recorded_parse(judge_text: Text) -> object:
    letter = parse_letter(judge_text)
    return {"letter": letter} | {name: letter == wanted for name, wanted in _MEANINGS.items()}


def recorded_aggregate(judge_texts: tuple[Text, ...]) -> object:
    letters = [parse_letter(text) for text in judge_texts]
    shares, metrics = rates(letters), official_metrics(letters)
    accuracy = shares["accuracy_given_attempted"]
    return {
        "score_mean": metrics.pop("score"),
        "metrics": metrics,
        "aggregate": {
            **{f"is_{name}": shares[name] for name in ("correct", "incorrect", "not_attempted")},
            # The official sum of the two rates differs from 1 - not_attempted in the last bits.
            "is_given_attempted": shares["correct"] + shares["incorrect"],
            "accuracy_given_attempted": accuracy,
        },
        "output": {"accuracy_given_attempted": accuracy, "f1": shares["f1"]},
    }


def recorded_inspect_aggregate(judge_texts: tuple[Text, ...]) -> object:
    shares = rates([parse_letter(text) for text in judge_texts])
    return {
        **{name: shares[name] for name in ("correct", "not_attempted", "incorrect")},
        "attempted": 1 - shares["not_attempted"],
        "correct_given_attempted": shares["accuracy_given_attempted"],
        "f_score": shares["f1"],
    }


OFFICIAL = base.official_rules(base.GPT, temperature=0.5, tries=1, sampling="simple_evals")
BENCHMARK = Benchmark(
    name="simpleqa",
    title="SimpleQA",
    answer_format=AnswerFormat.EXACT,
    load=load,
    grader=lambda rules: Grader(rules, grade, "correct", total, prompts=("simpleqa",), is_binary=True),
    official=OFFICIAL,
    drtulu=base.drtulu_rules(OFFICIAL, max_output_tokens=1000),
    units={
        "simpleqa": {
            "parse": {
                "official": recorded_parse,
                "inspect_evals_original_strict": parse_standalone_letter,
                "inspect_evals_original_paper": parse_letter,
            },
            "aggregate": {"official": recorded_aggregate, "inspect_evals_simpleqa_metric": recorded_inspect_aggregate},
        }
    },
    hub="openaipublic.blob.core.windows.net/simple-evals/simple_qa_test_set.csv",
    guidance=base.SHORT_GUIDANCE,
)
