"""ResearchQA files: a JSON array of questions with rubric items."""

from pathlib import Path

from pydantic import Field

from rubricem_agent.evals.example import Benchmark, Example, Gold
from rubricem_agent.evals.files.source import Expectation, Row, assemble, json_array, read_row
from rubricem_env.domain.base import Text

OFFICIAL = Expectation(rows=3750)
"""The test split."""


class ResearchQAGold(Gold):
    """The rubric items in file order, and the field of research."""

    rubric: tuple[Text, ...]
    field: Text
    general_domain: Text


class _RubricItem(Row):
    rubric_item: Text


class _Row(Row):
    id: Text = Field(min_length=1)
    query: Text = Field(min_length=1)
    rubric: tuple[_RubricItem, ...]
    field: Text = ""
    general_domain: Text = ""


def load(path: Path, *, expect: Expectation = OFFICIAL) -> Benchmark[ResearchQAGold]:
    """Queries for the agent; rubric items in the gold."""
    rows = [read_row(place, _Row) for place in json_array(path)]
    gold = [
        ResearchQAGold(
            id=row.id,
            rubric=tuple(item.rubric_item for item in row.rubric),
            field=row.field,
            general_domain=row.general_domain,
        )
        for row in rows
    ]
    return assemble(path, [Example(id=row.id, prompt_text=row.query) for row in rows], gold=gold, expect=expect)
