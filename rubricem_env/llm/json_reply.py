"""Reads the JSON object of a reply."""

import json

from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.chat import ChatReply

MAX_REPLY_CHARS = 200_000
_CODE = "```"


def parse_json_object(reply: ChatReply) -> dict[str, object]:
    """The JSON object of a reply: bare, or inside one code block that is the whole reply.

    NaN and Infinity become strings, so that only the field with such a value is invalid.

    Raises:
        ModelError: truncated, too long, not JSON, or not an object.
    """
    if len(reply.text) > MAX_REPLY_CHARS:
        raise ModelError(
            f"the reply has {len(reply.text)} characters; at most {MAX_REPLY_CHARS} are read", is_retryable=True
        )
    text = reply.text.strip()
    if text.startswith(_CODE) and text.endswith(_CODE) and "\n" in text:
        text = text[text.index("\n") : -len(_CODE)]
    try:
        value = json.loads(text, parse_constant=str)
    except (ValueError, RecursionError) as failure:
        cut = " (it was truncated at the token limit)" if reply.finish == "length" else ""
        raise ModelError(f"the reply is not valid JSON{cut}: {failure}", is_retryable=True) from failure
    if not isinstance(value, dict):
        raise ModelError(f"the reply is a JSON {type(value).__name__}; an object is needed", is_retryable=True)
    return value
