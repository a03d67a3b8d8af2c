"""A time-out around calls that wait for other machines and cannot be interrupted: a sentence instead of a hang."""

import re
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from rubricem_env.domain.errors import BoundaryError

Result = TypeVar("Result")
WATCH_EVERY = 5.0
"""Seconds between two looks at what a call waits for."""
_NAMED = re.compile(r"class_name: (?:\S*\.)?(?P<name>\w+)\n(?:.*\n)*?\tpid: (?P<pid>\d+)\n(?:.*\n)*?\tip: (?P<ip>\S+)")
"""How Ray names an actor that has died, in ten lines."""

ENGINE_LOST = "the engine behind a vLLM server, whose own process lives"
_UNBORN = "error raised in its creation task"
_RAISED = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception): .*\S)", re.MULTILINE)
"""The last line of a traceback."""


class TimeLimitError(BoundaryError):
    """A part of a step has not come to an end in its time. What it waited for may still hang: end the process."""


class WorkerLostError(BoundaryError):
    """A process of the run is gone, so what waits for it would wait for ever."""

    @classmethod
    def of(cls, told: str) -> "WorkerLostError":
        """What Ray has told of it, as one sentence."""
        if _UNBORN in told:
            reason = _RAISED.findall(told)
            return cls(
                f"a process of the run could not start: {reason[-1] if reason else ' '.join(told.split())}. Look into its "
                "log, under /tmp/ray/session_latest/logs."
            )
        named = _NAMED.search(told)
        gone = (
            "{name}, process {pid} on {ip}".format(**named.groupdict()) if named else " ".join(told.split()).rstrip(".")
        )
        return cls(
            f"a process of the run is gone: {gone}. Look into its log, under /tmp/ray/session_latest/logs; memory that "
            "ran out is the usual reason. The same command goes on from the last checkpoint."
        )


def within(
    seconds: float,
    doing: str,
    call: Callable[[], Result],
    *,
    setting: str,
    watch: Callable[[], None] | None = None,
    every: float = WATCH_EVERY,
) -> Result:
    """The result of `call`, or what it raises. It runs in a thread, which is left behind when the time is up.

    `watch` is called now and then meanwhile; what it raises ends the wait.

    Raises:
        TimeLimitError: it has not returned after `seconds`; the message names the setting.
    """
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=doing.replace(" ", "-"))
    ends = time.monotonic() + seconds
    try:
        future = thread.submit(call)
        while not _is_done(future, min(every, ends - time.monotonic())):
            if time.monotonic() >= ends:
                raise TimeLimitError(
                    f"could not {doing} in {seconds:g} seconds. A worker or a sampling engine hangs or is gone: look "
                    "into its log, under /tmp/ray/session_latest/logs. The same command goes on from the last "
                    f"checkpoint; if the machines are only slow, raise {setting}."
                )
            if watch is not None:
                watch()
        return future.result()
    finally:
        thread.shutdown(wait=False)


def _is_done(future: "Future[Result]", seconds: float) -> bool:
    try:
        future.exception(timeout=max(0.0, seconds))
    except TimeoutError:
        return future.done()
    return True
