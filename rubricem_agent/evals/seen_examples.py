"""Leaves out the examples that training or memory has seen."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from pydantic import JsonValue

from rubricem_agent.evals.dataset import Example
from rubricem_agent.evals.files import Advice, json_lines
from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_env.domain.trajectory import query_key
from rubricem_records.evaluations.manifest import Inputs

_NAMES = ("question", "query", "prompt", "problem")

SEEN_FILE = Advice(
    "--seen the file of JSON lines that training read, or the folder of a bank",
    "Give the file that training read, one JSON object a line.",
)


def seen_keys(path: Path) -> frozenset[str]:
    """Keys of every question in a file of JSON lines: training samples, trajectories, exported bank items.

    Raises FileFormatError where the file cannot be read, or no line of it names a question.
    """
    keys = frozenset(key for line in json_lines(path, SEEN_FILE) for key in _keys_in(line.content))
    if not keys:
        raise FileFormatError(
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


def find_seen(examples: Sequence[Example], keys: Collection[str]) -> tuple[str, ...]:
    """Ids of the examples whose question has one of the keys."""
    return tuple(example.id for example in examples if query_key(example.prompt_text) in keys)


def without_seen(inputs: Inputs, seen: Collection[str], *, drops: bool, where: str) -> Inputs:
    """The inputs without the examples that training has seen.

    Raises UsageError where there are such examples and dropping them was not requested, or nothing is left.
    """
    dropped = tuple(example_id for example_id in inputs.ids if example_id in seen)
    if not dropped:
        return inputs
    if not drops:
        raise UsageError(
            f"{len(dropped)} of {len(inputs.ids)} examples are in {where}, the first being {dropped[0]!r}: their "
            "numbers would not be held out. Use --drop-seen to leave them out; the report will say so."
        )
    kept = tuple(example_id for example_id in inputs.ids if example_id not in dropped)
    if not kept:
        raise UsageError(f"all {len(dropped)} examples are in {where}; nothing is left to evaluate.")
    return inputs.model_copy(update={"ids": kept, "left_out": (*inputs.left_out, *dropped)})
