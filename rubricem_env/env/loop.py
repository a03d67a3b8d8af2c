"""An event loop in a thread of its own, so that a blocking `step` can drive asynchronous tools, also inside Jupyter."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from rubricem_env.domain.errors import OrderError

T = TypeVar("T")


class LoopThread:
    """Runs coroutines to their end for a synchronous caller. Started by the first one, stopped by `close`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._starting = threading.Lock()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait for the coroutine's result. An interrupt cancels it.

        Raises:
            OrderError: the loop is closed.
        """
        if self._is_closed:
            coroutine.close()
            raise OrderError("the environment is closed; make a new one.")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._started())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Stop the loop and join its thread; safe to call twice."""
        self._is_closed = True
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=10)
        loop.close()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._starting:  # several threads may step environments that share one loop
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="rubricem-env", daemon=True)
                self._thread.start()
            return self._loop
