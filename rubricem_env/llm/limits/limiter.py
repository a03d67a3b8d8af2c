"""The rate limit of one server: calls at once, requests a minute, tokens a minute in all, of input and of output."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
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
    """Input and output together. The next two count them apart, for servers that do."""
    input_tokens_per_minute: PositiveCount | None = None
    output_tokens_per_minute: PositiveCount | None = None

    def seconds(self, tokens: int, output_tokens: int) -> tuple[float, ...]:
        """The seconds that a call takes of each rate; more tokens than a minute allows count as a minute's."""
        amounts = (
            (1, self.requests_per_minute),
            (tokens + output_tokens, self.tokens_per_minute),
            (tokens, self.input_tokens_per_minute),
            (output_tokens, self.output_tokens_per_minute),
        )
        return tuple(60 * min(1.0, amount / limit) if limit else 0.0 for amount, limit in amounts)


_SHORTEST_PAUSE, _LONGEST_PAUSE = 1.0, 8.0
"""Seconds that all calls wait after a refusal without Retry-After: they double while refusals follow each other."""


class Limiter:
    """Shared by every caller of one server, on one event loop at a time. First come, first served.

    The calls of a minute are spread over it: each waits until the time of those before it has passed, which is 1/60 of
    a minute for a call where 60 a minute are allowed. A caller says afterwards what its call has really used.
    """

    def __init__(self, rates: Rates, timing: Timing) -> None:
        self._rates = rates
        self._timing = timing
        self._slots: asyncio.Semaphore | None = None
        self._turns: asyncio.Lock | None = None
        """Whoever has it is the next to begin."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._free_at = tuple(0.0 for _ in rates.seconds(0, 0))
        """When the next call may begin, by each of the rates."""
        self._has_rates = any(rates.seconds(1, 1))
        self._pause = 0.0
        """Seconds of the latest pause after a refusal without Retry-After; 0 after a call that was not refused."""

    def slot(self, tokens: int, output_tokens: int = 0) -> AbstractAsyncContextManager[None]:
        """Occupy one slot while a call of about so many tokens of input and output runs.

        The clock of the call's retries stands still until then.
        """
        slots, turns = self._semaphore()
        # A free slot where no minute is counted is taken at once.
        is_free = not (self._has_rates or slots.locked() or turns.locked() or self._is_paused())
        return slots if is_free else self._turn(self._rates.seconds(tokens, output_tokens), slots, turns)

    @asynccontextmanager
    async def _turn(
        self, seconds: Sequence[float], slots: asyncio.Semaphore, turns: asyncio.Lock
    ) -> AsyncIterator[None]:
        # A call whose turn has come need not stop the clock.
        waits = slots.locked() or turns.locked() or self._is_paused()
        with stand_still() if waits else nullcontext():
            await self._begin(seconds, slots, turns)
        try:
            yield
        finally:
            slots.release()

    async def _begin(self, seconds: Sequence[float], slots: asyncio.Semaphore, turns: asyncio.Lock) -> None:
        """Take a slot when the turn has come. A caller that gives up before has taken nothing from the others."""
        ready = self._timing.clock()
        async with turns:
            if slots.locked():
                await slots.acquire()
                ready = self._timing.clock()
            else:
                await slots.acquire()
            try:
                # Calls may return tokens, or be refused, while this one sleeps.
                while (wait := max(self._free_at) - self._timing.clock()) > 0:
                    await self._timing.sleep(wait)
            except BaseException:
                slots.release()
                raise
            # From when the call was ready: tokens that were returned meanwhile are not lost, and idle time is.
            self._free_at = tuple(
                max(ready, free_at) + taken for free_at, taken in zip(self._free_at, seconds, strict=True)
            )

    def settle(self, reserved: tuple[int, int], used: tuple[int, int]) -> None:
        """Count what a call has used, input and output, in place of what it had reserved."""
        if any(used):
            self._pause = 0.0
        if self._has_rates:
            before, after = self._rates.seconds(*reserved), self._rates.seconds(*used)
            changes = (new - old for new, old in zip(after, before, strict=True))
            self._free_at = tuple(free_at + change for free_at, change in zip(self._free_at, changes, strict=True))

    def refuse(self, retry_after: float | None) -> None:
        """The server refused a call for its rate: no other one begins until `retry_after`, or for a growing pause."""
        if retry_after is None:
            if self._is_paused() and self._pause:
                return  # This call began before the pause.
            retry_after = self._pause = min(_LONGEST_PAUSE, max(_SHORTEST_PAUSE, 2 * self._pause))
        until = self._timing.clock() + retry_after
        self._free_at = tuple(max(free_at, until) for free_at in self._free_at)

    def _is_paused(self) -> bool:
        return max(self._free_at) > self._timing.clock()

    def _semaphore(self) -> tuple[asyncio.Semaphore, asyncio.Lock]:
        # Made inside the loop that uses it: a semaphore of a closed loop raises when callers queue.
        loop = asyncio.get_running_loop()
        if self._slots is None or self._turns is None or self._loop is not loop:
            self._slots, self._turns = asyncio.Semaphore(self._rates.concurrency), asyncio.Lock()
            self._loop = loop
        return self._slots, self._turns


class LimiterProtocol(Protocol):
    """Whatever hands out turns at one server: a `Limiter`, or another process's."""

    def slot(self, tokens: int) -> AbstractAsyncContextManager[None]: ...


LimiterOf = Callable[[str, Rates], LimiterProtocol]
"""The limiter of a server by its name and its rates."""


def own_limiter(server: str, rates: Rates) -> LimiterProtocol:
    """A limiter for this process alone."""
    return Limiter(rates, Timing.real())
