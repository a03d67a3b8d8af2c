"""The rate limit of one server: calls at once, requests a minute, tokens a minute."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Protocol

from rubricem_env.domain.base import Frozen, PositiveCount
from rubricem_env.llm.limits.deadline import stand_still
from rubricem_env.llm.limits.timing import Timing


class Rates(Frozen):
    """What the server allows; None means no limit."""

    concurrency: PositiveCount = 256
    requests_per_minute: PositiveCount | None = None
    tokens_per_minute: PositiveCount | None = None


class Limiter:
    """Shared by every caller of one server, on one event loop at a time. First come, first served.

    The calls of a minute are spread over it: each waits until the time of those before it has passed, which is 1/60 of
    a minute for a call where 60 a minute are allowed. A call of more tokens than a minute allows counts as a minute's.
    """

    def __init__(self, rates: Rates, timing: Timing) -> None:
        self._rates = rates
        self._has_rates = rates.requests_per_minute is not None or rates.tokens_per_minute is not None
        self._timing = timing
        self._slots: asyncio.Semaphore | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._free_at = [0.0, 0.0]
        """When the next call may begin: by the limit on requests, by the limit on tokens."""

    def slot(self, tokens: int) -> AbstractAsyncContextManager[None]:
        """Occupy one slot while a call of about so many tokens runs.

        The clock of the call's retries stands still until then.
        """
        slots = self._semaphore()
        # A free slot where no minute is counted is taken at once.
        return self._turn(tokens, slots) if self._has_rates or slots.locked() else slots

    @asynccontextmanager
    async def _turn(self, tokens: int, slots: asyncio.Semaphore) -> AsyncIterator[None]:
        now = self._timing.clock()
        amounts = ((1, self._rates.requests_per_minute), (tokens, self._rates.tokens_per_minute))
        seconds = [60 * min(1.0, amount / limit) if limit else 0.0 for amount, limit in amounts]
        begins = [max(now, free_at) for free_at in self._free_at]
        self._free_at = [begin + taken for begin, taken in zip(begins, seconds, strict=True)]
        try:
            # A call whose turn has come need not stop the clock.
            with stand_still() if max(begins) > now or slots.locked() else nullcontext():
                if max(begins) > now:
                    await self._timing.sleep(max(begins) - now)
                await slots.acquire()
        except BaseException:
            # A caller that gives up before its turn must not delay the others for a call that is not made.
            self._free_at = [free_at - taken for free_at, taken in zip(self._free_at, seconds, strict=True)]
            raise
        try:
            yield
        finally:
            slots.release()

    def _semaphore(self) -> asyncio.Semaphore:
        # Made inside the loop that uses it: a semaphore of a closed loop raises when callers queue.
        loop = asyncio.get_running_loop()
        if self._slots is None or self._loop is not loop:
            self._slots = asyncio.Semaphore(self._rates.concurrency)
            self._loop = loop
        return self._slots


class LimiterProtocol(Protocol):
    """Whatever hands out turns at one server: a `Limiter`, or another process's."""

    def slot(self, tokens: int) -> AbstractAsyncContextManager[None]: ...


LimiterOf = Callable[[str, Rates], LimiterProtocol]
"""The limiter of a server by its name and its rates."""


def own_limiter(server: str, rates: Rates) -> LimiterProtocol:
    """A limiter for this process alone."""
    return Limiter(rates, Timing.real())
