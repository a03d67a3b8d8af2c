"""WebWalkerQA: a chain-of-thought grade per answer, and the accuracy overall and in six cells.

A verdict that cannot be read, or a missing answer, leaves the mean: the official loop never writes such a row.
"""

import re
import string
from collections.abc import Sequence
from typing import Literal, NamedTuple

Grade = Literal["CORRECT", "INCORRECT"]

TYPES = ("single_source", "multi_source")
DIFFICULTIES = ("easy", "medium", "hard")

_GRADE = re.compile(r"grade:\s*(correct|incorrect)", re.IGNORECASE)
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class JudgedRow(NamedTuple):
    """One question with its cell; no prediction or no verdict text means that it was not answered or not judged."""

    question: str
    type: str | None
    difficulty: str | None
    prediction: str | None
    verdict: str | None


def parse_grade(reply: str) -> Grade | None:
    """The first "grade: (in)correct" anywhere, else the first word, else the last; None where none of them says.

    "GRADE: PARTIALLY CORRECT" reads as correct, by its last word.
    """
    match = _GRADE.search(reply)
    if match:
        return _as_grade(match.group(1))
    words = reply.split()
    return (_as_grade(words[0]) or _as_grade(words[-1])) if words else None


def score_grade(grade: Grade | None) -> int | None:
    return None if grade is None else int(grade == "CORRECT")


def report(rows: Sequence[JudgedRow]) -> dict[str, float | None]:
    """Accuracy per type and difficulty and overall; None where nothing was scored.

    A row of an unknown type or difficulty counts overall only. Where a question stands twice, the later row names
    the cell of both, because the official code looks cells up by question.
    """
    cells: dict[str, list[int]] = {f"{kind}_{level}": [] for kind in TYPES for level in DIFFICULTIES}
    overall: list[int] = []
    cell_of = {row.question: f"{row.type}_{row.difficulty}" for row in rows}
    for row in rows:
        score = _score(row)
        if score is not None:
            overall.append(score)
            cells.get(cell_of[row.question], []).append(score)
    return {cell: _mean(scores) for cell, scores in cells.items()} | {"overall": _mean(overall)}


def strict_accuracy(rows: Sequence[JudgedRow]) -> float | None:
    """Strict mode: unanswered and unreadable rows count as wrong."""
    return _mean([_score(row) or 0 for row in rows])


def tongyi_says_correct(judgement: str) -> bool:
    """The rule of Tongyi DeepResearch: the text is "correct" or begins with an a, so "Answer: B" is correct."""
    lowered = judgement.lower()
    return lowered == "correct" or lowered.startswith("a")


def _score(row: JudgedRow) -> int | None:
    if row.prediction is None or row.verdict is None:
        return None
    return score_grade(parse_grade(row.verdict))


def _mean(scores: Sequence[int]) -> float | None:
    return sum(scores) / len(scores) if scores else None


def _as_grade(word: str) -> Grade | None:
    upper = word.translate(_PUNCTUATION).upper()
    return "CORRECT" if upper == "CORRECT" else "INCORRECT" if upper == "INCORRECT" else None
