"""Time limits around calls that wait for other machines."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from rubricem_env.domain.errors import BoundaryError

from .lost_processes import LOGS

Result = TypeVar("Result")
WATCH_EVERY = 5.0
"""Seconds between two checks of the processes that a call waits for."""


def call_with_timeout(
    seconds: float,
    action: str,
    call: Callable[[], Result],
    *,
    setting: str,
    watch: Callable[[], None] | None = None,
    paused: Callable[[], float] = lambda: 0.0,
    every: float = WATCH_EVERY,
) -> Result:
    """The result of `call`, or what it raises. It runs in a thread, which is abandoned when the time is up.

    `watch` is called every few seconds meanwhile; what it raises ends the wait. `paused` gives the seconds of all
    pauses, which do not count.

    Raises:
        BoundaryError: it has not returned after `seconds`; the message names the setting. End the process then: what it
            waited for may still hang.
    """
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=action.replace(" ", "-"))
    ends, before = time.monotonic() + seconds, paused()
    try:
        future = thread.submit(call)
        while not wait([future], timeout=min(every, max(0.1, ends - time.monotonic()))).done:
            if time.monotonic() >= ends and time.monotonic() >= ends + paused() - before:
                raise BoundaryError(
                    f"could not {action} in {seconds:g} seconds. A worker or a sampling engine hangs or is gone: see "
                    f"{LOGS}. The same command resumes from the last checkpoint; if the machines are only slow, raise "
                    f"{setting}."
                )
            if watch is not None:
                watch()
        return future.result()
    finally:
        thread.shutdown(wait=False)
