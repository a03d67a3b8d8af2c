"""Equal work done once: whoever asks for what is already under way waits for that."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class SingleFlight(Generic[Result]):
    """The work under way, by key. On one event loop at a time."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[int, str], asyncio.Task[Result]] = {}
        self._waiting: dict[tuple[int, str], int] = {}

    async def run(self, key: str, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """The result of `work`, or of equal work already begun.

        One who is cancelled leaves the others waiting; the work itself is cancelled when nobody waits any more.
        """
        place = (id(asyncio.get_running_loop()), key)
        task = self._tasks.get(place)
        if task is None:
            # A task of its own, so that the first asker's cancellation does not take the others' result.
            task = self._tasks[place] = asyncio.get_running_loop().create_task(work())
            task.add_done_callback(lambda _: self._tasks.pop(place, None))
        self._waiting[place] = self._waiting.get(place, 0) + 1
        try:
            return await asyncio.shield(task)
        finally:
            self._leave(place, task)

    def _leave(self, place: tuple[int, str], task: "asyncio.Task[Result]") -> None:
        self._waiting[place] -= 1
        if self._waiting[place] == 0:
            del self._waiting[place]
            if not task.done():
                # Out at once, so that nobody joins work that is being cancelled.
                self._tasks.pop(place, None)
                task.cancel()
