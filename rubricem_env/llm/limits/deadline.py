"""The deadline of a call's retries, which stands still while the call waits for its turn."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar


class Deadline:
    """When the tries of a call must have ended. It stands still while the call waits for its turn."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seconds = seconds
        self._ends = clock() + seconds
        self._timeout: asyncio.Timeout | None = None

    @property
    def left(self) -> float:
        return max(0.0, self._ends - self._clock())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Abort what runs in it at the deadline, by a TimeoutError that names the seconds."""
        timeout = asyncio.timeout(self.left)
        try:
            async with timeout as self._timeout:
                yield
        except TimeoutError as late:
            if not timeout.expired():
                raise
            raise TimeoutError(f"no result within {self._seconds:g} seconds") from late
        finally:
            self._timeout = None

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        began = self._clock()
        self._reschedule(None)
        try:
            yield
        finally:
            self._ends += self._clock() - began
            self._reschedule(asyncio.get_running_loop().time() + self.left)

    def _reschedule(self, when: float | None) -> None:
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(when)


DEADLINE: ContextVar[Deadline | None] = ContextVar("deadline of the call", default=None)
"""Between a call's retries and the limiter below them, which need not know each other."""


def stand_still() -> AbstractContextManager[None]:
    """While a call waits for its turn, the clock of its retries stands still."""
    deadline = DEADLINE.get()
    return nullcontext() if deadline is None else deadline.standing_still()
