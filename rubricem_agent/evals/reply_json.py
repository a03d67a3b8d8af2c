"""JSON as judges write it: parsed without raising, and the fences around it."""

import json
from dataclasses import dataclass

from pydantic import JsonValue


@dataclass(frozen=True)
class Unparsed:
    """A reply from which no verdict could be read, and why. Never a zero."""

    reason: str


def parse_json(text: str) -> JsonValue | Unparsed:
    """The JSON value that the whole text is. NaN and Infinity are let in and of two equal keys the last wins, as in Python's json."""
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Unparsed(f"not JSON: {error}")
    return value


def drop_fence_marks(text: str) -> str:
    """The text without any fence mark, labelled json or bare, wherever it stands."""
    return text.replace("```json", "").replace("```", "")
