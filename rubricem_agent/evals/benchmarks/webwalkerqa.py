"""WebWalkerQA: a chain-of-thought grade per answer, and the accuracy overall and in six cells.

A verdict that cannot be read, or a missing answer, leaves the mean: the official loop never writes such a row.

WebWalkerQA files: JSON Lines of the Hugging Face columns. The README's capitalised record is another version.

WebWalkerQA with its official judge: a grade after an explanation, overall and in six cells.

Recorded WebWalkerQA cases.
"""

import re
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field

from rubricem_agent.evals.base import Benchmark, CaseInput, Example, RecordedInput, Rules, ShortAnswerGold, Unit
from rubricem_agent.evals.files import Expectation, FileRow, assemble, json_lines, read_row
from rubricem_agent.evals.grading import (
    Case,
    Grade,
    GradedExample,
    Grading,
    GradingQuestion,
    JudgePrompts,
    Totals,
    mean_metrics,
    mean_of,
    scores_of,
)
from rubricem_env.domain.base import Text

WebWalkerGrade = Literal["CORRECT", "INCORRECT"]

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


def parse_grade(reply: str) -> WebWalkerGrade | None:
    """The first "grade: (in)correct" anywhere, else the first word, else the last; None where none of them says.

    "GRADE: PARTIALLY CORRECT" reads as correct, by its last word.
    """
    match = _GRADE.search(reply)
    if match:
        return _as_grade(match.group(1))
    words = reply.split()
    return (_as_grade(words[0]) or _as_grade(words[-1])) if words else None


def score_grade(grade: WebWalkerGrade | None) -> int | None:
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


def _as_grade(word: str) -> WebWalkerGrade | None:
    upper = word.translate(_PUNCTUATION).upper()
    return "CORRECT" if upper == "CORRECT" else "INCORRECT" if upper == "INCORRECT" else None


OFFICIAL = Expectation(rows=680)


class Cell(FileRow):
    """The cell of the report that a question belongs to."""

    type: Literal["single_source", "multi_source"]
    difficulty_level: Literal["easy", "medium", "hard"]


class WebWalkerGold(ShortAnswerGold):
    """The answer, its cell, and the page where a walk would start: search agents are not given it."""

    answer: Text
    info: Cell
    root_url: Text

    def accepted_answers(self) -> tuple[str, ...]:
        return (self.answer,)


class _Row(FileRow):
    question: Text = Field(min_length=1)
    answer: Text = Field(min_length=1)
    info: Cell
    root_url: Text


def load(path: Path, *, expect: Expectation = OFFICIAL) -> Benchmark[WebWalkerGold]:
    """Questions for the agent; answers, cells and root urls in the gold. The row number from 0 is the id."""
    rows = [read_row(place, _Row) for place in json_lines(path)]
    examples = [Example(id=str(number), prompt_text=row.question) for number, row in enumerate(rows)]
    gold = [
        WebWalkerGold(id=str(number), answer=row.answer, info=row.info, root_url=row.root_url)
        for number, row in enumerate(rows)
    ]
    return assemble(path, examples, gold=gold, expect=expect)


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
            gold=GOLD_JOINT.join(case.gold_as(ShortAnswerGold).accepted_answers()),
            answer=case.answer.text,
        )
        ((reply,),) = yield (GradingQuestion("grade", prompt),)
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


class WebWalkerParseInput(RecordedInput):
    judge_text: Text


class CellInput(RecordedInput):
    type: Text | None = None
    difficulty_level: Text | None = None


class WebWalkerRecordedRow(RecordedInput):
    question: Text
    info: CellInput = CellInput()
    pred: Text | None = None
    judge: Text | None = None


class WebWalkerRunInput(RecordedInput):
    rows: tuple[WebWalkerRecordedRow, ...]


class WebWalkerTongyiInput(RecordedInput):
    judgement: Text


def recorded_parse(case_input: CaseInput) -> object:
    grade = parse_grade(WebWalkerParseInput.read(case_input).judge_text)
    return {"value": grade, "score": score_grade(grade)}


def recorded_score_run(case_input: CaseInput) -> object:
    rows = [
        JudgedRow(row.question, row.info.type, row.info.difficulty_level, row.pred, row.judge)
        for row in WebWalkerRunInput.read(case_input).rows
    ]
    return {"report": report(rows)}


def recorded_judge_as_tongyi(case_input: CaseInput) -> object:
    return {"is_correct": tongyi_says_correct(WebWalkerTongyiInput.read(case_input).judgement)}


UNITS = {"parse": Unit(recorded_parse), "run": Unit(recorded_score_run), "tongyi_rule": Unit(recorded_judge_as_tongyi)}
