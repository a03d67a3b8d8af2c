"""How fast a model may be called: calls at once, requests a minute, tokens a minute."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from pydantic import Field

from rubricem_env.domain.base import Frozen
from rubricem_env.llm.retry import Timing

Rate = Annotated[int, Field(ge=1)]


class Rates(Frozen):
    """What the server allows; None is no limit."""

    concurrency: Rate = 256
    requests_per_minute: Rate | None = None
    tokens_per_minute: Rate | None = None


class _Bucket:
    """A minute's allowance that refills steadily. A request larger than the whole bucket waits for a full one."""

    def __init__(self, per_minute: int, now: float) -> None:
        self._capacity = float(per_minute)
        self._level = self._capacity
        self._filled_at = now

    def wait_for(self, amount: float, now: float) -> float:
        """Take the amount, on credit if need be; returns the seconds after which it may be used."""
        rate = self._capacity / 60
        self._level = min(self._capacity, self._level + (now - self._filled_at) * rate)
        self._filled_at = now
        self._level -= min(amount, self._capacity)
        return max(0.0, -self._level / rate)

    def give_back(self, amount: float) -> None:
        """What was taken was not used."""
        self._level = min(self._capacity, self._level + min(amount, self._capacity))


class Limiter:
    """Shared by every caller of one server, on one event loop at a time. First come, first served."""

    def __init__(self, rates: Rates, timing: Timing) -> None:
        self._rates = rates
        self._timing = timing
        self._slots: asyncio.Semaphore | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        now = timing.clock()
        per_minute = (rates.requests_per_minute, rates.tokens_per_minute)
        self._requests, self._tokens = (_Bucket(rate, now) if rate else None for rate in per_minute)

    @asynccontextmanager
    async def slot(self, tokens: int) -> AsyncIterator[None]:
        """Hold one of the places while a call of about so many tokens runs."""
        wait = max(self._take(self._requests, 1), self._take(self._tokens, tokens))
        is_used = False
        try:
            if wait > 0:
                await self._timing.sleep(wait)
            async with self._semaphore():
                is_used = True
                yield
        finally:
            # Whoever gives up before its turn must not make all that come after it wait for a call that is not made.
            if not is_used:
                self._give_back(tokens)

    def _give_back(self, tokens: int) -> None:
        for bucket, amount in ((self._requests, 1), (self._tokens, tokens)):
            if bucket is not None:
                bucket.give_back(amount)

    def _take(self, bucket: _Bucket | None, amount: float) -> float:
        return bucket.wait_for(amount, self._timing.clock()) if bucket else 0.0

    def _semaphore(self) -> asyncio.Semaphore:
        # Made inside the loop that uses it: a semaphore of a loop that is gone raises as soon as callers queue.
        loop = asyncio.get_running_loop()
        if self._slots is None or self._loop is not loop:
            self._slots, self._loop = asyncio.Semaphore(self._rates.concurrency), loop
        return self._slots
