"""Time limits around calls that wait for other machines, patience with services that are away, and who has failed."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from rubricem_env.domain.errors import BoundaryError

Result = TypeVar("Result")
WATCH_EVERY = 5.0
"""Seconds between two checks of the processes that a call waits for."""
ENGINE_LOST = "the engine behind a vLLM server, whose own process is alive"
_LOGS = "its log, under /tmp/ray/session_latest/logs"
_NAMED = re.compile(r"class_name: (?:\S*\.)?(?P<name>\w+)\n(?:.*\n)*?\tpid: (?P<pid>\d+)\n(?:.*\n)*?\tip: (?P<ip>\S+)")
"""How Ray names an actor that has died, in ten lines."""
_NOT_STARTED = "error raised in its creation task"
_RAISED = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception): .*\S)", re.MULTILINE)
"""The last line of a traceback."""


def lost_process(message: str) -> BoundaryError:
    """The error for a process that died, from Ray's message or `ENGINE_LOST`, in one sentence."""
    text = " ".join(message.split()).rstrip(".")
    if _NOT_STARTED in message:
        reason = _RAISED.findall(message)
        return BoundaryError(f"a process of the run could not start: {reason[-1] if reason else text}. See {_LOGS}.")
    named = _NAMED.search(message)
    gone = "{name}, process {pid} on {ip}".format(**named.groupdict()) if named else text
    return BoundaryError(
        f"a process of the run is gone: {gone}. See {_LOGS}; the usual reason is that memory ran out. The same command "
        "resumes from the last checkpoint."
    )


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
                    f"{_LOGS}. The same command resumes from the last checkpoint; if the machines are only slow, raise "
                    f"{setting}."
                )
            if watch is not None:
                watch()
        return future.result()
    finally:
        thread.shutdown(wait=False)


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
