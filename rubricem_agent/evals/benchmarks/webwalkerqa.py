"""WebWalkerQA: a chain-of-thought grade per answer, and the accuracy overall and in six cells.

A verdict that cannot be read, or a missing answer, leaves the mean: the official loop never writes such a row. Files
are JSON Lines of the Hugging Face columns (the README's capitalised record is another version), or DR Tulu's file.
"""

import re
import string
from collections.abc import Sequence
from typing import Literal

from pydantic import AliasPath, ConfigDict, Field, JsonValue

from rubricem_agent.evals import base, grading
from rubricem_agent.evals.benchmarks.twowiki import yes_no_grader
from rubricem_agent.evals.files import FileRow, assemble, json_lines, load_short_form, read_numbered, read_utf8
from rubricem_env.domain.base import Text
from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_records.evaluation_rules import Rules

NUM_ROWS = 680
CELLS = tuple(f"{kind}_{level}" for kind in ("single_source", "multi_source") for level in ("easy", "medium", "hard"))

SCORES = {"CORRECT": 1, "INCORRECT": 0}
_GRADE = re.compile(r"grade:\s*(correct|incorrect)", re.IGNORECASE)
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class WebWalkerGold(base.Gold):
    """A row of the file. The page where a walk would start is not given to search agents."""

    question: Text = Field(min_length=1)
    answer: Text = Field(min_length=1)
    type: Literal["single_source", "multi_source"] = Field(validation_alias=AliasPath("info", "type"))
    difficulty_level: Literal["easy", "medium", "hard"] = Field(validation_alias=AliasPath("info", "difficulty_level"))
    root_url: Text

    def accepted_answers(self) -> tuple[str, ...]:
        return (self.answer,)


class JudgedRow(FileRow):
    """One question with its cell; without `pred` or `judge` it was not answered or not judged."""

    model_config = ConfigDict(allow_inf_nan=True)

    question: Text
    info: dict[str, JsonValue] = Field(default_factory=dict)
    pred: Text | None = None
    judge: Text | None = None


def load(paths: base.DataPaths, *, any_version: bool = False) -> base.Dataset:
    """The official lines or DR Tulu's, identified by the first line. The row number from 0 is the id."""
    path = base.required(paths.path, "the benchmark webwalkerqa")
    if '"messages"' in read_utf8(path).split("\n", 1)[0]:
        return load_short_form(path, any_version=any_version, num_rows=NUM_ROWS)
    rows = read_numbered(json_lines(path), WebWalkerGold)
    examples = [base.Example(id=row.id, prompt_text=row.question) for row in rows]
    return assemble(path, examples, gold=rows, any_version=any_version, num_rows=NUM_ROWS)


def parse_grade(reply: str) -> str | None:
    """The first "grade: (in)correct" anywhere, else the first word, else the last; None where none of them is a grade.

    "GRADE: PARTIALLY CORRECT" reads as correct, by its last word.
    """
    match = _GRADE.search(reply)
    if match:
        return _as_grade(match.group(1))
    words = reply.split()
    return (_as_grade(words[0]) or _as_grade(words[-1])) if words else None


def _as_grade(word: str) -> str | None:
    upper = word.translate(_PUNCTUATION).upper()
    return upper if upper in SCORES else None


def grade(case: grading.Case, grader: grading.Grader) -> grading.Grading:
    """One question; an empty prediction is not judged. What cannot be read leaves the mean, strictly it is wrong."""
    if case.answer.is_empty:
        return grader.excluded("there is no prediction")
    asked = grader.question(
        "grade",
        "webwalkerqa",
        question=case.example.prompt_text,
        gold=" / ".join(case.gold.accepted_answers()),
        answer=case.answer.text,
    )
    ((reply,),) = yield (asked,)
    given = parse_grade(reply)
    if given is None:
        return grader.excluded("the judge gave no grade", unreadable=1)
    score = SCORES[given]
    metrics: dict[str, float] = {}
    if isinstance(case.gold, WebWalkerGold):
        metrics = {f"{case.gold.type}_{case.gold.difficulty_level}": float(score)}
    return grading.Grade(float(score), float(score), metrics=metrics, labels={"grade": str(score)})


def total(grades: Sequence[grading.Grade], rules: Rules) -> grading.Totals:
    """Accuracy overall and per cell; an empty cell is None."""
    return {"overall": grading.mean_score(grades), **dict.fromkeys(CELLS), **grading.mean_metrics(grades)}


def make_grader(rules: Rules) -> grading.Grader:
    """The official judge, or DR Tulu's."""
    if rules.mode == "drtulu":
        return yes_no_grader(rules)
    return grading.Grader(rules, grade, "overall", total, prompts=("webwalkerqa",), is_binary=True)


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


BENCHMARK = grading.Benchmark(
    name="webwalkerqa",
    title="WebWalker",
    answer_format=AnswerFormat.EXACT,
    load=load,
    grader=make_grader,
    official=base.official_rules("gpt-4", tries=1),
    drtulu=base.drtulu_rules(base.official_rules(base.GPT, tries=1), max_output_tokens=1000),
    units={
        "webwalkerqa": {
            "parse": {"official": recorded_parse},
            "run": {"official": recorded_run},
            "tongyi_rule": {"official": recorded_tongyi_rule},
        }
    },
    hub="huggingface.co/datasets/callanwu/WebWalkerQA: split main, as JSON Lines",
    guidance=base.SHORT_GUIDANCE,
)
