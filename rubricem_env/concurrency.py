"""Runs coroutines together, gives synchronous callers an event loop, and derives seeds."""

import asyncio
import hashlib
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Executor
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, TypeVar

import numpy as np

from rubricem_env.domain.errors import UsageError

Result = TypeVar("Result")

HEAVY_WORK: ContextVar[Executor | None] = ContextVar("heavy_work", default=None)
"""Where `run_heavy` computes; a service sets it whose event loop must answer meanwhile."""


async def run_heavy(work: Callable[..., Result], *given: object) -> Result:
    """What `work` returns, which computes for more than some milliseconds: here, or in the executor of `HEAVY_WORK`."""
    executor = HEAVY_WORK.get()
    if executor is None:
        return work(*given)
    context = copy_context()
    return await asyncio.get_running_loop().run_in_executor(executor, partial(context.run, work, *given))


async def run_together(coroutines: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """The results, in the order given. The first failure cancels the rest and is raised itself.

    No task outlives this call.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup as failures:
        # A caller catches one typed error; the others are consequences of the same outage.
        raise failures.exceptions[0] from None
    return [task.result() for task in running]


def derive_seed(seed: int | None, *parts: object) -> int:
    """A 64-bit seed from the run's seed and the parts, such as step, question and purpose; None counts as 0.

    Equal parts give equal seeds on every machine and in every order of completion.
    """
    text = "\0".join(str(part) for part in (seed or 0, *parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def open_generator(seed: int | None, *parts: object) -> np.random.Generator:
    """A generator with the derived seed."""
    return np.random.default_rng(derive_seed(seed, *parts))


class LoopThread:
    """An event loop in a thread: runs coroutines for a synchronous caller, also inside Jupyter.

    The first coroutine starts it; `close` stops it.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._starting = threading.Lock()

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Wait for the coroutine's result. An interrupt cancels it.

        Raises:
            UsageError: the loop is closed.
        """
        if self._is_closed:
            coroutine.close()
            raise UsageError("the environment is closed; make a new one.")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._started())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Stop the loop and join its thread; safe to call twice."""
        self._is_closed = True
        loop = self._loop
        thread = self._thread
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
