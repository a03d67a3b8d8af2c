"""The questions that training and memory have seen, by query key."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import JsonValue

from rubricem_agent.evals.errors import BenchmarkFileError
from rubricem_agent.evals.files.source import Advice, json_lines
from rubricem_env.domain.query import query_key

_NAMES = ("question", "query", "prompt", "problem")
SEEN_FILE = Advice(
    "a file of training data",
    "give --seen the file of JSON lines that training read, or the folder of a bank",
    "Give the file that training read, one JSON object a line.",
)


def seen_keys(path: Path) -> frozenset[str]:
    """Keys of every question in a file of JSON lines: training samples, trajectories, exported bank items.

    Raises:
        BenchmarkFileError: the file cannot be read, or no line of it names a question.
    """
    keys = frozenset(key for place in json_lines(path, SEEN_FILE) for key in _keys_in(place.content))
    if not keys:
        raise BenchmarkFileError(
            f"{path} names no question in any line; a line needs one of query_key, {', '.join(_NAMES)}. "
            "Give the file that training read."
        )
    return keys


def _keys_in(content: JsonValue) -> Iterator[str]:
    """The row's own key and question, and those one level further down."""
    if not isinstance(content, dict):
        return
    key = content.get("query_key")
    if isinstance(key, str):
        yield key
    yield from (query_key(text) for name in _NAMES if isinstance(text := content.get(name), str))
    for value in content.values():
        if isinstance(value, dict):
            yield from _keys_in(value)
