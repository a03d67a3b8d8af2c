"""A model with a rate limiter, a usage meter and redaction."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.chat import ChatModel, ChatReply, ChatRequest
from rubricem_env.llm.keys import Redactor, redact_failure
from rubricem_env.llm.limits.hedge import call_with_hedge
from rubricem_env.llm.limits.limiter import Limiter
from rubricem_env.llm.usage import Meter, Usage

CHARS_PER_TOKEN = 3
"""Deliberately low, so that a call reserves more than it will use."""


class MeteredModel:
    """A model with a rate limiter, a usage meter and redaction. It does not retry: the caller has the retry policy."""

    def __init__(
        self,
        model: ChatModel,
        *,
        limiter: Limiter,
        meter: Meter,
        redactor: Redactor = str,
        hedge_after: float | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """A request that has no reply `hedge_after` seconds from its begin is sent again; the first reply is taken."""
        self.name = model.name
        self._model = model
        self._limiter = limiter
        self._redactor = redactor
        self._hedge_after = hedge_after
        self._sleep = sleep
        self.meter = meter

    async def complete(self, request: ChatRequest) -> ChatReply:
        """One call, or two where the first is slow; known secrets never reach the message of an error.

        Raises:
            ModelError: as the model says.
            SpendLimitReached: the call might pass a limit, and was not made.
        """
        if self._hedge_after is None:
            return await self._call(request, asyncio.Event())
        return await call_with_hedge(partial(self._call, request), after=self._hedge_after, sleep=self._sleep)

    async def _call(self, request: ChatRequest, has_begun: asyncio.Event) -> ChatReply:
        expected = expected_usage(request)
        reserved = (expected.input_tokens, expected.output_tokens)
        async with (
            self._limiter.slot(*reserved),
            self.meter.reserve(request.purpose, self.name, expected=expected) as record,
        ):
            has_begun.set()
            try:
                reply = await self._model.complete(request)
            except ModelError as failure:
                if failure.is_rate_limited:
                    self._limiter.settle(reserved, (0, 0))
                    self._limiter.refuse(failure.retry_after)
                raise redact_failure(failure, self._redactor) from None
            except asyncio.CancelledError:
                # The server has the prompt, and may bill it.
                record(expected.model_copy(update={"output_tokens": 0}))
                raise
            record(reply.usage)
            # A server that reports no usage has used what was reserved.
            used = (reply.usage.input_tokens, reply.usage.output_tokens)
            self._limiter.settle(reserved, used if reply.usage.tokens else reserved)
            return reply

    async def aclose(self) -> None:
        await self._model.aclose()


def expected_usage(request: ChatRequest) -> Usage:
    """The most that a request is likely to use: its text, and all the output that it allows."""
    characters = len(request.prompt) + len(request.system)
    return Usage(calls=1, input_tokens=characters // CHARS_PER_TOKEN + 1, output_tokens=request.max_output_tokens)
