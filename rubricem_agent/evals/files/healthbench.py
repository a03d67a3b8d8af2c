"""HealthBench files: JSON Lines, one conversation with its rubric per line."""

from pathlib import Path

from pydantic import Field, JsonValue

from rubricem_agent.evals.example import Benchmark, Example, Gold, Turn
from rubricem_agent.evals.files.source import Expectation, Row, assemble, json_lines, read_row
from rubricem_agent.evals.healthbench import RubricItem
from rubricem_env.domain.base import Text

OFFICIAL = Expectation(rows=5000)
HARD = Expectation(rows=1000)
CONSENSUS = Expectation(rows=3671)


class HealthBenchGold(Gold):
    """The rubric of a conversation, its example tags, and the physicians' reply where there is one."""

    rubrics: tuple[RubricItem, ...]
    example_tags: tuple[Text, ...]
    ideal_completions: dict[str, JsonValue] | None = None


class _Row(Row):
    prompt_id: Text = Field(min_length=1)
    prompt: tuple[Turn, ...] = Field(min_length=1)
    rubrics: tuple[RubricItem, ...]
    example_tags: tuple[Text, ...]
    ideal_completions_data: dict[str, JsonValue] | None = None
    canary: Text | None = None


def load(path: Path, *, expect: Expectation = OFFICIAL) -> Benchmark[HealthBenchGold]:
    """Conversations for the agent; rubrics, tags and ideal replies in the gold."""
    rows = [read_row(place, _Row) for place in json_lines(path)]
    examples = [
        Example(id=row.prompt_id, prompt_text=render_conversation(row.prompt), turns=row.prompt) for row in rows
    ]
    gold = [
        HealthBenchGold(
            id=row.prompt_id,
            canary=row.canary,
            rubrics=row.rubrics,
            example_tags=row.example_tags,
            ideal_completions=row.ideal_completions_data,
        )
        for row in rows
    ]
    return assemble(path, examples, gold=gold, expect=expect)


def render_conversation(turns: tuple[Turn, ...]) -> str:
    """Turns as "role: content" with a blank line between; a single turn is its content alone."""
    if len(turns) == 1:
        return turns[0].content
    return "\n\n".join(f"{turn.role}: {turn.content}" for turn in turns)
