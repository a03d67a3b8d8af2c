"""Recorded WebWalkerQA cases."""

from rubricem_agent.evals import webwalkerqa
from rubricem_agent.evals.recorded.unit import CaseInput, RecordedInput, Unit
from rubricem_env.domain.base import Text


class ParseInput(RecordedInput):
    judge_text: Text


class Cell(RecordedInput):
    type: Text | None = None
    difficulty_level: Text | None = None


class RecordedRow(RecordedInput):
    question: Text
    info: Cell = Cell()
    pred: Text | None = None
    judge: Text | None = None


class RunInput(RecordedInput):
    rows: tuple[RecordedRow, ...]


class TongyiInput(RecordedInput):
    judgement: Text


def parse(case_input: CaseInput) -> object:
    grade = webwalkerqa.parse_grade(ParseInput.read(case_input).judge_text)
    return {"value": grade, "score": webwalkerqa.score_grade(grade)}


def score_run(case_input: CaseInput) -> object:
    rows = [
        webwalkerqa.JudgedRow(row.question, row.info.type, row.info.difficulty_level, row.pred, row.judge)
        for row in RunInput.read(case_input).rows
    ]
    return {"report": webwalkerqa.report(rows)}


def judge_as_tongyi(case_input: CaseInput) -> object:
    return {"is_correct": webwalkerqa.tongyi_says_correct(TongyiInput.read(case_input).judgement)}


UNITS = {"parse": Unit(parse), "run": Unit(score_run), "tongyi_rule": Unit(judge_as_tongyi)}
