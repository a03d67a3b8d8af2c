"""Asks a model until its reply can be used."""

from collections.abc import Callable
from typing import TypeVar

from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.chat import ChatModel, ChatReply, ChatRequest
from rubricem_env.llm.limits.retry import RetryPolicy, call_with_retry
from rubricem_env.llm.limits.timing import Timing


async def ask_once(model: ChatModel, request: ChatRequest) -> ChatReply:
    """One call whose reply is an answer of the model.

    Raises:
        ModelError: as the model says; also for an empty, blocked or aborted reply, after which a retry may help.
    """
    reply = await model.complete(request)
    if reply.outage:
        raise ModelError(reply.outage, is_retryable=True)
    return reply


Parsed = TypeVar("Parsed")


async def ask_for(
    model: ChatModel, request: ChatRequest, *, parse: Callable[[ChatReply], Parsed], retry: RetryPolicy, timing: Timing
) -> Parsed:
    """Ask until `parse` accepts the reply, within the attempts and the time allowed.

    `parse` raises a ModelError of one sentence; the next try shows that sentence to the model.

    Raises:
        ModelError: every try failed; the last failure.
    """
    complaint = ""

    async def attempt() -> Parsed:
        nonlocal complaint
        again = (
            f"\n\nYour last reply could not be used: {complaint}. Reply again, with one JSON object of the asked shape."
            if complaint
            else ""
        )
        reply = await ask_once(model, request._replace(prompt=request.prompt + again))
        try:
            return parse(reply)
        except ModelError as failure:
            complaint = str(failure)
            raise

    return await call_with_retry(
        attempt, doing=f"ask {model.name} to {request.purpose}", error=ModelError, policy=retry, timing=timing
    )
