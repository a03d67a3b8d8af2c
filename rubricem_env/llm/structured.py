"""A JSON reply that was checked whole: asked for, parsed, asked for again with what was wrong, typed or failed."""

import json
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.base import (
    ChatModel,
    ChatReply,
    ChatRequest,
    Finish,
    PassingModelError,
    advise_on_model_error,
)
from rubricem_env.llm.retry import RetryPolicy, Timing, call_with_retry

Parsed = TypeVar("Parsed")
MAX_REPLY_CHARS = 200_000
_FENCE = "```"


class UnusableReplyError(PassingModelError):
    """The model answered, but not with what was asked for. Asking again may help."""


class Insistence(NamedTuple):
    """How long to insist on a usable reply, and by which clock."""

    retry: RetryPolicy
    timing: Timing


async def ask_for(
    model: ChatModel, request: ChatRequest, *, parse: Callable[[ChatReply], Parsed], insistence: Insistence
) -> Parsed:
    """Ask until `parse` accepts the reply, within the attempts and the time allowed.

    `parse` raises UnusableReplyError with one sentence; the next try shows that sentence to the model.

    Raises:
        ModelError: every try failed; the last failure.
    """
    complaint = ""

    async def attempt() -> Parsed:
        nonlocal complaint
        reply = await model.complete(_with_complaint(request, complaint))
        try:
            return parse(reply)
        except UnusableReplyError as failure:
            complaint = str(failure)
            raise

    return await call_with_retry(
        attempt,
        doing=f"ask {model.name} to {request.purpose}",
        error=ModelError,
        advise=advise_on_model_error,
        policy=insistence.retry,
        timing=insistence.timing,
    )


def parse_json_object(reply: ChatReply) -> dict[str, object]:
    """The object in a reply: bare, or inside one code fence that is all of it.

    NaN and Infinity become strings, so that they spoil the field that they stand in and nothing else.

    Raises:
        UnusableReplyError: blocked, cut off, too long, not JSON, or not an object.
    """
    if reply.finish is Finish.BLOCKED:
        raise UnusableReplyError("the server blocked the reply")
    if len(reply.text) > MAX_REPLY_CHARS:
        raise UnusableReplyError(f"the reply has {len(reply.text)} characters; at most {MAX_REPLY_CHARS} are read")
    try:
        found = json.loads(_without_fence(reply.text), parse_constant=str)
    except (ValueError, RecursionError) as failure:
        cut = " (it was cut off at the token limit)" if reply.finish is Finish.LENGTH else ""
        raise UnusableReplyError(f"the reply is not valid JSON{cut}: {failure}") from failure
    if not isinstance(found, dict):
        raise UnusableReplyError(f"the reply is a JSON {type(found).__name__}; an object is needed")
    return found


def _without_fence(text: str) -> str:
    stripped = text.strip()
    if not (stripped.startswith(_FENCE) and stripped.endswith(_FENCE) and "\n" in stripped):
        return stripped
    return stripped[stripped.index("\n") : -len(_FENCE)]


def _with_complaint(request: ChatRequest, complaint: str) -> ChatRequest:
    if not complaint:
        return request
    again = f"Your last reply could not be used: {complaint}. Reply again, with one JSON object of the asked shape."
    return request._replace(prompt=f"{request.prompt}\n\n{again}")
