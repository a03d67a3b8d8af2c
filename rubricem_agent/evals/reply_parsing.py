"""Reads a judge's reply: one verdict in the form that its prompt asked for, or none.

Every mode but `lenient` grades by these functions. The official scorers' own parses are in the files of their
benchmarks, for recorded verdicts and for that mode; `parse_json` and `as_number` are their Python.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from rubricem_env.llm.json_reply import read_json

VerdictT = TypeVar("VerdictT", bound=BaseModel)

_MARKUP = re.compile(r"[*_`#>]")
_BETWEEN = r"[\s\"']*[:\uff1a=\u2192][\s\"']*"
"""What stands between the name of a field and its value, in a reply without markup."""


@dataclass(frozen=True)
class Unparsed:
    """A reply from which no verdict could be read, and why. Never a zero."""

    reason: str


CUT = Unparsed("the reply was cut at the token limit")
NO_VERDICT = Unparsed("the reply is no verdict in the form that was asked for")


def read_form(reply: str, form: type[VerdictT]) -> VerdictT | Unparsed:
    """The reply as the JSON object of this form, bare or in one code block.

    Prose beside it, a key given twice, a field that the form does not have, and a value of another type or out of its
    range make it unreadable.
    """
    value = read_value(reply)
    if isinstance(value, Unparsed):
        return value
    try:
        return form.model_validate(value)
    except ValidationError as failure:
        first = failure.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the reply"
        return Unparsed(f"{where}: {first['msg']}")


def read_value(reply: str) -> JsonValue | Unparsed:
    """The reply as one JSON value of whatever kind, as `read_json` reads it."""
    try:
        return read_json(reply)
    except ValueError as error:
        return Unparsed(f"not JSON: {error}")


def read_choice(reply: str, field: str, choices: Sequence[str], *, followed_by: Sequence[str] = ()) -> str | Unparsed:
    """The choice in the reply's last line, which is `field: choice`; case and markup do not count.

    Lines of the fields `followed_by` may come after it. A reply that gives the field a choice anywhere else, also the
    same one, is unreadable: which of them is the verdict, and which a quotation, is unknown.
    """
    plain = _MARKUP.sub("", reply)
    lines = [line.strip(" \t\r-") for line in plain.split("\n") if line.strip()]
    while lines and any(_value_of(lines[-1], name) is not None for name in followed_by):
        lines.pop()
    said = _value_of(lines[-1], field) if lines else None
    choice = next((choice for choice in choices if said is not None and said.lower() == choice.lower()), None)
    if choice is None:
        return Unparsed(f"the last line is not `{field}: {' or '.join(choices)}`")
    mentions = re.findall(
        rf"(?<![a-z0-9]){field}{_BETWEEN}(?:{'|'.join(choices)})(?![a-z0-9])", plain, re.IGNORECASE | re.ASCII
    )
    return choice if len(mentions) == 1 else Unparsed(f"the reply gives `{field}` {len(mentions)} times")


def _value_of(line: str, field: str) -> str | None:
    name, colon, value = line.partition(":")
    return value.strip(" \t.") if colon and name.strip().lower() == field.lower() else None


def parse_json(text: str) -> JsonValue | Unparsed:
    """The whole text as JSON, as the official scorers read it.

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
    """The value as Python's `float` reads it, as the official scorers do; None where it cannot."""
    if value is None or isinstance(value, dict | list):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
