"""The predecessor's short-form sets (2Wiki, WebWalker): JSON Lines of messages and a ground truth."""

import json
from pathlib import Path

from pydantic import Field

from rubricem_agent.evals.errors import BenchmarkFileError
from rubricem_agent.evals.example import Benchmark, Example, Gold, Turn
from rubricem_agent.evals.files.source import Expectation, Place, Row, assemble, json_lines, read_row
from rubricem_env.domain.base import Text

TWOWIKI = Expectation(rows=1000)
WEBWALKER = Expectation(rows=680)


class ShortFormGold(Gold):
    """Every answer that counts as right."""

    answers: tuple[Text, ...] = Field(min_length=1)


class _Row(Row):
    messages: tuple[Turn, ...] = Field(min_length=1)
    ground_truth: Text = Field(min_length=1)


class _Answers(Row):
    answers: tuple[Text, ...] = Field(min_length=1)


def load(path: Path, *, expect: Expectation = TWOWIKI) -> Benchmark[ShortFormGold]:
    """The last message for the agent; the answers in the gold. The row number from 0 is the id."""
    places = json_lines(path)
    rows = [read_row(place, _Row) for place in places]
    examples = [Example(id=str(number), prompt_text=row.messages[-1].content) for number, row in enumerate(rows)]
    gold = [
        ShortFormGold(id=str(number), answers=_answers(place, row.ground_truth))
        for number, (place, row) in enumerate(zip(places, rows, strict=True))
    ]
    return assemble(path, examples, gold=gold, expect=expect)


def _answers(place: Place, ground_truth: str) -> tuple[str, ...]:
    """One answer, or several where the text is a JSON list, which it is when it begins with a bracket."""
    if not ground_truth.startswith("["):
        return (ground_truth,)
    try:
        answers = json.loads(ground_truth)
    except ValueError as error:
        raise BenchmarkFileError(
            f"{place.where}: the field ground_truth begins with a bracket and is not a JSON list ({error}); "
            "several answers are written as one. Mend the row."
        ) from error
    return read_row(Place(place.where, {"answers": answers}), _Answers).answers
