"""One rate limit for many processes.

`SharedLimits` stands in one of them, such as a Ray actor, and `RemoteLimiter` calls it from the others.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from rubricem_env.llm.limits.deadline import stand_still
from rubricem_env.llm.limits.limiter import Limiter, Rates
from rubricem_env.llm.limits.timing import Timing

LEASE_SECONDS = 120.0
"""How long a slot may be occupied: one of a process that died is free again after it."""


class SharedLimits:
    """The limiters of several servers, on one event loop. A server's rates are those that it is first named with."""

    def __init__(self, timing: Timing | None = None) -> None:
        self._timing = timing or Timing.real()
        self._limiters: dict[str, Limiter] = {}
        self._calls: dict[str, asyncio.Task[None]] = {}

    async def enter(self, server: str, rates: Rates, *, tokens: int, call: str) -> None:
        """Wait for a slot for the call, or until the call leaves."""
        limiter = self._limiters.setdefault(server, Limiter(rates, self._timing))
        entered = asyncio.get_running_loop().create_future()
        task = self._calls[call] = asyncio.create_task(self._occupy(limiter, tokens, entered))
        task.add_done_callback(lambda _: self._calls.pop(call, None))
        await asyncio.wait({task, entered}, return_when=asyncio.FIRST_COMPLETED)

    async def leave(self, call: str) -> None:
        """Free the call's slot, or give up waiting for it; a call that has left already is passed over."""
        if call in self._calls:
            self._calls[call].cancel()

    async def _occupy(self, limiter: Limiter, tokens: int, entered: "asyncio.Future[None]") -> None:
        async with limiter.slot(tokens):
            entered.set_result(None)
            await self._timing.sleep(LEASE_SECONDS)


class RemoteLimiter:
    """The limiter of one server, in the process behind `enter` and `leave`."""

    def __init__(
        self, server: str, rates: Rates, *, enter: Callable[..., Awaitable[None]], leave: Callable[[str], object]
    ) -> None:
        """`leave` is not awaited: a call that is over does not wait for it."""
        self._server = server
        self._rates = rates
        self._enter = enter
        self._leave = leave

    @asynccontextmanager
    async def slot(self, tokens: int) -> AsyncIterator[None]:
        """Occupy one slot of all processes' while a call runs."""
        call = uuid.uuid4().hex
        try:
            with stand_still():
                await self._enter(self._server, self._rates, tokens=tokens, call=call)
            yield
        finally:
            self._leave(call)
