"""DeepSearchQA files: CSV. The answer type tells how many answers to look for and must not reach the agent."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from rubricem_agent.evals.example import Benchmark, Example, Gold
from rubricem_agent.evals.files.source import Expectation, Row, assemble, csv_rows, read_row
from rubricem_env.domain.base import Text

OFFICIAL = Expectation(rows=900, sha256="25d48dcf7efa872e5467032e8b8eedf38d301f59a252d0da95cda584baa78396")
COLUMNS = ("problem", "problem_category", "answer", "answer_type")

AnswerType = Literal["Single Answer", "Set Answer"]


class DeepSearchQAGold(Gold):
    """The answer as one text (the judge splits it), its type and its category."""

    answer: Text
    answer_type: AnswerType
    problem_category: Text


class _Row(Row):
    problem: Text = Field(min_length=1)
    answer: Text = Field(min_length=1)
    answer_type: AnswerType
    problem_category: Text
    example_id: Text | None = None


def load(path: Path, *, expect: Expectation = OFFICIAL) -> Benchmark[DeepSearchQAGold]:
    """Problems for the agent; answer, type and category in the gold. Without example_id the row number from 0 is the id."""
    rows = [read_row(place, _Row) for place in csv_rows(path, columns=COLUMNS)]
    ids = [row.example_id or str(number) for number, row in enumerate(rows)]
    gold = [
        DeepSearchQAGold(
            id=row_id, answer=row.answer, answer_type=row.answer_type, problem_category=row.problem_category
        )
        for row_id, row in zip(ids, rows, strict=True)
    ]
    examples = [Example(id=row_id, prompt_text=row.problem) for row_id, row in zip(ids, rows, strict=True)]
    return assemble(path, examples, gold=gold, expect=expect)
