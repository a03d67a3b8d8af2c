"""WebWalkerQA files: JSON Lines of the Hugging Face columns. The README's capitalised record is another version."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from rubricem_agent.evals.example import Benchmark, Example, Gold
from rubricem_agent.evals.files.source import Expectation, Row, assemble, json_lines, read_row
from rubricem_env.domain.base import Text

OFFICIAL = Expectation(rows=680)


class Cell(Row):
    """The cell of the report that a question belongs to."""

    type: Literal["single_source", "multi_source"]
    difficulty_level: Literal["easy", "medium", "hard"]


class WebWalkerGold(Gold):
    """The answer, its cell, and the page where a walk would start: search agents are not given it."""

    answer: Text
    info: Cell
    root_url: Text


class _Row(Row):
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
