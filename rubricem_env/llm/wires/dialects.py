"""The parameters that a model does not take, learned from its refusals."""

import re
from collections.abc import Mapping
from typing import Any

_OPTIONAL = (
    *("temperature", "top_p", "seed", "stop", "stream_options", "response_format", "text", "store", "instructions"),
    "max_tokens",
)
"""Parameters that a model may refuse; without any of them a reply can be had."""
_REFUSED = re.compile(
    r"unsupported|not (?:\w+ )?support|not permitted|deprecated|unrecogni[sz]ed|unknown|not allowed|cannot both"
    r"|unavailable|input should be",
    re.IGNORECASE,
)
_INVALID = re.compile(r"['\"]loc['\"].*input should be", re.IGNORECASE)
"""The error of a check of the request, as pydantic words it."""
Dialect = dict[str, str]
"""The name that the model takes in place of a parameter's. It is empty where the model takes none."""
JSON_OBJECT = "json_object"
"""In place of `response_format`: the older form of a schema, which llama-cpp-python takes alone."""
DIALECTS: dict[tuple[str, str, str], Dialect] = {}
"""What was learned in this process, by address, path and model."""
REASONING_MODEL = re.compile(r"gpt-5|o[1-9]\b")
AT_OPENAI: Mapping[str, Dialect] = {
    "chat/completions": {"max_tokens": "max_completion_tokens", "temperature": "", "top_p": ""},
    "responses": {"temperature": "", "top_p": ""},
}
"""What its reasoning models take: known, so that their first request is not refused."""


def is_refusal(status: int, said: str) -> bool:
    """Whether a failure is about the request. The server of llama-cpp-python gives its checks the status 500."""
    return status in (400, 422) or (status == 500 and bool(_INVALID.search(said)))


def learn_dialect(dialect: Dialect, body: Mapping[str, Any], said: str) -> str:
    """Read a refusal: the parameter of the body that the model does not take, which is noted in the dialect.

    It is empty where the refusal is about something else.
    """
    if not _REFUSED.search(said):
        return ""
    named = (name for name in _OPTIONAL if name in body and dialect.get(name, JSON_OBJECT) == JSON_OBJECT)
    refused = next((name for name in named if re.search(rf"[`'\"]{name}[`'\"]|\b{name}:", said)), "")
    if refused == "max_tokens":
        if "max_completion_tokens" not in said:
            return ""
        dialect[refused] = "max_completion_tokens"
    elif refused == "response_format" and refused not in dialect and JSON_OBJECT in said:
        dialect[refused] = JSON_OBJECT
    elif refused:
        dialect[refused] = ""
    return refused


def in_dialect(body: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    """The body as the model takes it."""
    taken = {}
    for name, value in body.items():
        instead = dialect.get(name, name)
        if instead == JSON_OBJECT:
            taken[name] = {"type": JSON_OBJECT, "schema": value["json_schema"]["schema"]}
        elif instead:
            taken[instead] = value
    return taken
