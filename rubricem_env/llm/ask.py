"""Asks a model until its reply can be used."""

from collections.abc import Callable, Sequence
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
    _refuse_outage(reply)
    return reply


def _refuse_outage(reply: ChatReply) -> None:
    if reply.outage:
        raise ModelError(reply.outage, is_retryable=True)


Parsed = TypeVar("Parsed")


async def ask_for(
    model: ChatModel, request: ChatRequest, *, parse: Callable[[ChatReply], Parsed], retry: RetryPolicy, timing: Timing
) -> Parsed:
    """Ask until `parse` accepts the reply, within the attempts and the time allowed.

    `parse` raises a ModelError of one sentence; the next try shows that sentence to the model, and counts the replies
    that could not be used, so that a model at temperature 0 never reads the same prompt twice.

    Raises:
        ModelError: every try failed; the last failure, and how many replies could not be used.
    """
    complaints: list[str] = []

    async def attempt() -> Parsed:
        reply = await model.complete(request._replace(prompt=request.prompt + _again(complaints)))
        try:
            _refuse_outage(reply)
            return parse(reply)
        except ModelError as failure:
            if reply.finish in ("stop", "length"):
                complaints.append(str(failure))
            raise

    try:
        return await call_with_retry(
            attempt, doing=f"ask {model.name} to {request.purpose}", error=ModelError, policy=retry, timing=timing
        )
    except ModelError as failure:
        if not complaints or complaints == [str(failure)]:
            raise
        raise ModelError(_with_complaints(str(failure), complaints), is_retryable=failure.is_retryable) from failure


def _again(complaints: Sequence[str]) -> str:
    """What is put after the prompt of a further try."""
    if not complaints:
        return ""
    which = "Your last reply" if len(complaints) == 1 else f"Your last {len(complaints)} replies"
    said = f"{which} could not be used: {complaints[-1]}."
    return f"\n\n{said} Reply again, with one JSON object of the asked shape."


def _with_complaints(failure: str, complaints: Sequence[str]) -> str:
    """The last failure, and how many replies could not be used, with the last reason."""
    if failure == complaints[-1]:
        return f"{len(complaints)} replies could not be used, the last one: {failure}"
    which = "the one reply" if len(complaints) == 1 else f"the {len(complaints)} replies"
    return f"{failure.rstrip('.')}; {which} before could not be used: {complaints[-1]}"
