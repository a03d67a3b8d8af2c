"""ResearchRubrics files: JSON Lines, one task with its weighted rubric per line."""

from pathlib import Path

from pydantic import Field

from rubricem_agent.evals.example import Benchmark, Example, Gold
from rubricem_agent.evals.files.source import Expectation, Row, assemble, json_lines, read_row
from rubricem_env.domain.base import Text

OFFICIAL = Expectation(rows=101)


class WeightedCriterion(Row):
    """One rubric item: a negative weight marks something to avoid."""

    criterion: Text
    weight: float
    axis: Text


class ResearchRubricsGold(Gold):
    """The rubric of a task and its domain."""

    rubrics: tuple[WeightedCriterion, ...]
    domain: Text


class _Row(Row):
    sample_id: Text = Field(min_length=1)
    prompt: Text = Field(min_length=1)
    rubrics: tuple[WeightedCriterion, ...]
    domain: Text = ""


def load(path: Path, *, expect: Expectation = OFFICIAL) -> Benchmark[ResearchRubricsGold]:
    """Prompts for the agent; rubrics in the gold."""
    rows = [read_row(place, _Row) for place in json_lines(path)]
    gold = [ResearchRubricsGold(id=row.sample_id, rubrics=row.rubrics, domain=row.domain) for row in rows]
    return assemble(path, [Example(id=row.sample_id, prompt_text=row.prompt) for row in rows], gold=gold, expect=expect)
