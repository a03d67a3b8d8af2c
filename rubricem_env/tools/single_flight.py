"""Equal work done once: whoever asks for what is already under way waits for that."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")
Place = tuple[int, str]


class _Flight(Generic[Result]):
    """One piece of work, and those who wait for it."""

    def __init__(self) -> None:
        self.waiters: set[asyncio.Future[Result]] = set()
        self.task: asyncio.Task[None] | None = None

    def hand_over(self, result: Result) -> None:
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(result)

    def fail(self, failure: BaseException | None) -> None:
        """None is a cancellation."""
        for waiter in self.waiters:
            if waiter.done():
                continue
            if failure is None:
                waiter.cancel()
            else:
                waiter.set_exception(failure)


class SingleFlight(Generic[Result]):
    """The work under way, by key. On one event loop at a time."""

    def __init__(self) -> None:
        self._flights: dict[Place, _Flight[Result]] = {}

    async def run(self, key: str, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """The result of `work`, or of equal work already begun.

        One who is cancelled leaves the others waiting; the work itself is cancelled when nobody waits any more.
        """
        loop = asyncio.get_running_loop()
        place = (id(loop), key)
        flight = self._flights.get(place) or self._start(place, work(), loop)
        waiter: asyncio.Future[Result] = loop.create_future()
        flight.waiters.add(waiter)
        try:
            return await waiter
        finally:
            flight.waiters.discard(waiter)
            if not flight.waiters:
                self._abandon(place, flight)

    def _start(
        self, place: Place, work: Coroutine[Any, Any, Result], loop: asyncio.AbstractEventLoop
    ) -> _Flight[Result]:
        flight = self._flights[place] = _Flight()
        # A task of its own, so that the first asker's cancellation does not take the others' result.
        flight.task = loop.create_task(self._fly(place, flight, work))
        flight.task.add_done_callback(lambda task: self._land(place, flight, task))
        return flight

    async def _fly(self, place: Place, flight: _Flight[Result], work: Coroutine[Any, Any, Result]) -> None:
        """Hands the result over in the very step that has it: a callback would cost all of them a turn of the loop."""
        result = await work
        self._leave(place, flight)
        flight.hand_over(result)

    def _land(self, place: Place, flight: _Flight[Result], task: "asyncio.Task[None]") -> None:
        """Where there was no result, tells those who still wait why."""
        self._leave(place, flight)
        flight.fail(None if task.cancelled() else task.exception())

    def _abandon(self, place: Place, flight: _Flight[Result]) -> None:
        if flight.task is not None and not flight.task.done():
            # Out at once, so that nobody joins work that is being cancelled.
            self._leave(place, flight)
            flight.task.cancel()

    def _leave(self, place: Place, flight: _Flight[Result]) -> None:
        # Newer work may have the place of work that was abandoned.
        if self._flights.get(place) is flight:
            del self._flights[place]
