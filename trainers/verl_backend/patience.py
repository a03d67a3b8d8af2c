"""Patience with a service that is away: its callers wait, and one of them probes it."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

Result = TypeVar("Result")


class Patience:
    """Pauses callers while a service is away: one of them probes it with its own work, and the others wait for that."""

    def __init__(
        self,
        patience: float,
        probe: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Wait for an outage at most `patience` seconds, and probe every `probe` seconds."""
        self._patience, self._probe = patience, probe
        self._clock, self._sleep = clock, sleep
        self._probing = asyncio.Lock()
        self._began: float | None = None
        """When the outage began that lasts."""
        self._waited = 0.0
        """Seconds of all earlier ones."""

    @property
    def is_paused(self) -> bool:
        return self._began is not None and not self._is_exhausted

    @property
    def seconds(self) -> float:
        """Of all pauses, the present one included."""
        present = 0.0 if self._began is None else min(self._patience, self._clock() - self._began)
        return self._waited + present

    @property
    def _is_exhausted(self) -> bool:
        return self._began is not None and self._clock() - self._began >= self._patience

    def _begin(self) -> None:
        """Note when the service was first found away."""
        if self._began is None:
            self._began = self._clock()

    async def wait(self) -> bool:
        """Wait for the next probe of a service that is away; False, at once, where the patience is exhausted."""
        self._begin()
        if self._is_exhausted:
            return False
        await self._sleep(self._probe)
        return True

    def end(self) -> None:
        """The service answers again."""
        self._waited, self._began = self.seconds, None

    async def run(self, work: Callable[[], Awaitable[Result]], *, is_lost: Callable[[Result], bool]) -> Result:
        """The result of `work`, which is repeated while it is lost, until the patience is exhausted."""
        result = await work()
        while is_lost(result) and self._patience > 0:
            self._begin()
            async with self._probing:
                if self._began is not None:
                    if not await self.wait():
                        return result
                    result = await work()
                    if not is_lost(result):
                        self.end()
                    continue
            result = await work()
        return result
