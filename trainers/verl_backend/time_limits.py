"""A time-out around calls that wait for other machines and cannot be interrupted: a sentence instead of a hang."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from rubricem_env.domain.errors import BoundaryError

Result = TypeVar("Result")


class TimeLimitError(BoundaryError):
    """A part of a step has not come to an end in its time. What it waited for may still hang: end the process."""


def within(seconds: float, doing: str, call: Callable[[], Result], *, setting: str) -> Result:
    """The result of `call`, or what it raises. It runs in a thread, which is left behind when the time is up.

    Raises:
        TimeLimitError: it has not returned after `seconds`; the message names the setting.
    """
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=doing.replace(" ", "-"))
    try:
        return thread.submit(call).result(timeout=seconds)
    except TimeoutError as cause:
        raise TimeLimitError(
            f"could not {doing} in {seconds:g} seconds. A worker or a sampling engine hangs or is gone: look into its "
            "log, under /tmp/ray/session_latest/logs. The same command goes on from the last checkpoint; if the "
            f"machines are only slow, raise {setting}."
        ) from cause
    finally:
        thread.shutdown(wait=False)
