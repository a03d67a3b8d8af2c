"""WebWalkerQA: a chain-of-thought grade per answer, and the accuracy overall and in six cells.

The last line of a reply is the grade. A reply without it, or a missing answer, leaves the mean: the official loop
writes no row without a grade. Files are JSON Lines of the Hugging Face columns (the README's capitalised record is
another version), or DR Tulu's file.
"""

import re
import string
from collections.abc import Sequence
from typing import Literal

from pydantic import AliasPath, Field

from rubricem_agent.evals import grading
from rubricem_agent.evals.benchmark import Benchmark
from rubricem_agent.evals.benchmarks.drtulu_short_answer import yes_no_grader
from rubricem_agent.evals.dataset import DataPaths, Dataset, Example, Gold, required
from rubricem_agent.evals.files import assemble, json_lines, load_short_form, read_numbered, read_utf8
from rubricem_agent.evals.reply_parsing import NO_VERDICT, Unparsed, read_choice
from rubricem_agent.evals.rules import GPT, SHORT_GUIDANCE, drtulu_rules, official_rules, paper_rules
from rubricem_env.domain.base import Text
from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_records.evaluations.rules import Rules

NUM_ROWS = 680
CELLS = tuple(f"{kind}_{level}" for kind in ("single_source", "multi_source") for level in ("easy", "medium", "hard"))

SCORES = {"CORRECT": 1, "INCORRECT": 0}
_GRADE = re.compile(r"grade:\s*(correct|incorrect)", re.IGNORECASE)
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class WebWalkerGold(Gold):
    """A row of the file. The page where a walk would start is not given to search agents."""

    question: Text = Field(min_length=1)
    answer: Text = Field(min_length=1)
    type: Literal["single_source", "multi_source"] = Field(validation_alias=AliasPath("info", "type"))
    difficulty_level: Literal["easy", "medium", "hard"] = Field(validation_alias=AliasPath("info", "difficulty_level"))
    root_url: Text

    def accepted_answers(self) -> tuple[str, ...]:
        return (self.answer,)


def load(paths: DataPaths, *, any_version: bool = False) -> Dataset:
    """The official lines or DR Tulu's, identified by the first line. The row number from 0 is the id."""
    path = required(paths.path, "the benchmark webwalkerqa")
    if '"messages"' in read_utf8(path).split("\n", 1)[0]:
        return load_short_form(path, any_version=any_version, num_rows=NUM_ROWS)
    rows = read_numbered(json_lines(path), WebWalkerGold)
    examples = [Example(id=row.id, prompt_text=row.question) for row in rows]
    return assemble(path, examples, gold=rows, any_version=any_version, num_rows=NUM_ROWS)


def read_grade(reply: str) -> str | Unparsed:
    """CORRECT or INCORRECT, as the last line gives it."""
    return read_choice(reply, "grade", tuple(SCORES))


def parse_grade(reply: str) -> str | None:
    """The official parse: the first "grade: (in)correct" anywhere, else the first word, else the last.

    "GRADE: PARTIALLY CORRECT" reads as correct, by its last word. None where none of them is a grade.
    """
    match = _GRADE.search(reply)
    if match:
        return _as_grade(match.group(1))
    words = reply.split()
    return (_as_grade(words[0]) or _as_grade(words[-1])) if words else None


def _as_grade(word: str) -> str | None:
    upper = word.translate(_PUNCTUATION).upper()
    return upper if upper in SCORES else None


def grade(case: grading.Case, grader: grading.Grader) -> grading.Asking[grading.Grade]:
    """One question; an empty prediction is not judged. What cannot be read leaves the mean, strictly it is wrong."""
    if case.answer.is_empty:
        return grader.excluded("there is no prediction")
    question = grader.question(
        "grade",
        "webwalkerqa",
        parse=read_grade,
        official_parse=lambda reply: parse_grade(reply) or NO_VERDICT,
        question=case.example.prompt_text,
        gold=" / ".join(case.gold.accepted_answers()),
        answer=case.answer.text,
    )
    (judged,) = yield (question,)
    if isinstance(judged, Unparsed):
        return grader.excluded("the judge gave no grade")
    score = SCORES[judged]
    metrics: dict[str, float] = {}
    if isinstance(case.gold, WebWalkerGold):
        metrics = {f"{case.gold.type}_{case.gold.difficulty_level}": float(score)}
    return grading.Grade(float(score), float(score), metrics=metrics, labels={"grade": str(score)})


def total(grades: Sequence[grading.Grade], rules: Rules) -> grading.Totals:
    """Accuracy overall and per cell; an empty cell is None."""
    return {"overall": grading.mean_score(grades), **dict.fromkeys(CELLS), **grading.mean_metrics(grades)}


def make_grader(rules: Rules) -> grading.Grader:
    """The official judge, or DR Tulu's."""
    if rules.is_drtulu:
        return yes_no_grader(rules)
    return grading.Grader(rules, grade, "overall", total, prompts=("webwalkerqa",), is_binary=True)


DRTULU = drtulu_rules(official_rules(GPT, tries=1), max_output_tokens=1000)
BENCHMARK = Benchmark(
    name="webwalkerqa",
    title="WebWalker",
    answer_format=AnswerFormat.EXACT,
    load=load,
    grader=make_grader,
    official=official_rules("gpt-4", tries=1),
    drtulu=DRTULU,
    paper=paper_rules(DRTULU),
    hub="huggingface.co/datasets/callanwu/WebWalkerQA: split main, as JSON Lines",
    guidance=SHORT_GUIDANCE,
)
