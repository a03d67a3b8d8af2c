"""How a judge's reply is parsed: as JSON of whatever kind, or not at all."""

import json
from dataclasses import dataclass

from pydantic import JsonValue


@dataclass(frozen=True)
class Unparsed:
    """A reply from which no verdict could be read, and why. Never a zero."""

    reason: str


def parse_json(text: str) -> JsonValue | Unparsed:
    """The whole text as JSON.

    NaN and Infinity are accepted and the last of two equal keys wins, as in Python's json.
    """
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Unparsed(f"not JSON: {error}")
    return value


def drop_fence_marks(text: str) -> str:
    """The text without any code fence marks, labelled json or bare."""
    return text.replace("```json", "").replace("```", "")


def as_number(value: JsonValue) -> float | None:
    """The value as Python's `float` reads it; None where it cannot."""
    if value is None or isinstance(value, dict | list):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
