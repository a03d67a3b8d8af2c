"""Reads the JSON of a reply: one value, or none."""

import json
import math

from pydantic import JsonValue

from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.chat import ChatReply

MAX_REPLY_CHARS = 200_000
_CODE = "```"


def read_json(text: str) -> JsonValue:
    """The one JSON value that a text is: bare, or in one code block that is the whole text.

    An object that has a key twice is refused, because it is unknown which of the two is meant. A number that no float
    can hold (NaN, Infinity, 1e999) becomes its text, so that only the field with such a value is invalid.

    Raises:
        ValueError: it is something else; the message says what.
    """
    text = text.strip()
    if text.startswith(_CODE) and text.endswith(_CODE) and "\n" in text:
        text = text[text.index("\n") : -len(_CODE)]
    try:
        value: JsonValue = _DECODER.decode(text)
    except RecursionError as failure:
        raise ValueError("it is nested too deeply") from failure
    return value


def parse_json_object(reply: ChatReply) -> dict[str, JsonValue]:
    """The JSON object of a reply, as `read_json` reads it.

    Raises:
        ModelError: truncated, too long, not JSON, or not an object.
    """
    if len(reply.text) > MAX_REPLY_CHARS:
        raise ModelError(
            f"the reply has {len(reply.text)} characters; at most {MAX_REPLY_CHARS} are read", is_retryable=True
        )
    if reply.finish == "length":
        raise ModelError("the reply is not whole JSON: it was truncated at the token limit", is_retryable=True)
    try:
        value = read_json(reply.text)
    except ValueError as failure:
        raise ModelError(f"the reply is not valid JSON: {failure}", is_retryable=True) from failure
    if not isinstance(value, dict):
        raise ModelError(f"the reply is a JSON {type(value).__name__}; an object is needed", is_retryable=True)
    return value


def _finite(written: str) -> float | str:
    number = float(written)
    return number if math.isfinite(number) else written


def _without_repeated_keys(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the key {twice[:60]!r} twice")
    return fields


_DECODER = json.JSONDecoder(parse_constant=str, parse_float=_finite, object_pairs_hook=_without_repeated_keys)
