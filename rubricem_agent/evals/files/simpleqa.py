"""SimpleQA files: CSV with metadata, problem and answer. Rows have no id: their number from 0 names them."""

from pathlib import Path

from pydantic import Field

from rubricem_agent.evals.example import Benchmark, Example, Gold
from rubricem_agent.evals.files.source import Expectation, Row, assemble, csv_rows, read_row
from rubricem_env.domain.base import Text

OFFICIAL = Expectation(rows=4326, sha256="feee3f7e7db3617e94e8fcf1977b756ec420ef8568f4e0fcbbe0e92e9d5fc032")
COLUMNS = ("metadata", "problem", "answer")


class SimpleQAGold(Gold):
    """The answer, and the topic and sources as the file's own text."""

    answer: Text
    metadata: Text


class _Row(Row):
    problem: Text = Field(min_length=1)
    answer: Text = Field(min_length=1)
    metadata: Text


def load(path: Path, *, expect: Expectation = OFFICIAL) -> Benchmark[SimpleQAGold]:
    """Problems for the agent; answers, and metadata with the source urls, in the gold."""
    rows = [read_row(place, _Row) for place in csv_rows(path, columns=COLUMNS)]
    examples = [Example(id=str(number), prompt_text=row.problem) for number, row in enumerate(rows)]
    gold = [SimpleQAGold(id=str(number), answer=row.answer, metadata=row.metadata) for number, row in enumerate(rows)]
    return assemble(path, examples, gold=gold, expect=expect)
