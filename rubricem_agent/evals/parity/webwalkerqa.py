"""Recorded verdicts of WebWalkerQA: one grade, a whole run, and the rule of Tongyi DeepResearch."""

from pydantic import ConfigDict, Field, JsonValue

from rubricem_agent.evals import grading
from rubricem_agent.evals.benchmarks.webwalkerqa import CELLS, SCORES, parse_grade
from rubricem_agent.evals.files import FileRow
from rubricem_agent.evals.parity.unit import Unit
from rubricem_env.domain.base import Text


class JudgedRow(FileRow):
    """One question with its cell; without `pred` or `judge` it was not answered or not judged."""

    model_config = ConfigDict(allow_inf_nan=True)

    question: Text
    info: dict[str, JsonValue] = Field(default_factory=dict)
    pred: Text | None = None
    judge: Text | None = None


def recorded_parse(judge_text: Text) -> object:
    parsed = parse_grade(judge_text)
    return {"value": parsed, "score": SCORES.get(parsed or "")}


def recorded_run(rows: tuple[JudgedRow, ...]) -> object:
    """Accuracy per type and difficulty and overall; None where nothing was scored.

    A row of an unknown type or difficulty counts overall only. Where a question is given twice, the later row decides
    the cell of both, because the official code finds cells by question.
    """
    cells: dict[str, list[int]] = {cell: [] for cell in CELLS}
    overall: list[int] = []
    cell_of = {row.question: f"{row.info.get('type')}_{row.info.get('difficulty_level')}" for row in rows}
    for row in rows:
        grade = None if row.pred is None or row.judge is None else parse_grade(row.judge)
        if grade is not None:
            overall.append(SCORES[grade])
            cells.get(cell_of[row.question], []).append(SCORES[grade])
    return {"report": {cell: grading.mean_of(scores) for cell, scores in {**cells, "overall": overall}.items()}}


def recorded_tongyi_rule(judgement: Text) -> object:
    """The rule of Tongyi DeepResearch: the text is "correct" or begins with an a, so "Answer: B" is correct."""
    lowered = judgement.lower()
    return {"is_correct": lowered == "correct" or lowered.startswith("a")}


UNITS = {"parse": Unit(recorded_parse), "run": Unit(recorded_run), "tongyi_rule": Unit(recorded_tongyi_rule)}
