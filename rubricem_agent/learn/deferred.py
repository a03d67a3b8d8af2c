"""Reflection work behind the training loop, trained on one step late (paper, appendix D).

    deferred.launch(Ticket(step, key))           after judging, in step N: returns at once
    deferred.collect(step=N + 1)                 Phase A of step N + 1: what has ended by now, however old
    await deferred.wait(key, timeout=30.0)       before a repeat whose lesson may be missing

Only `wait`, `drain` and `cancel` wait. Work that fails because of the world is returned as a value; a bug
in it is raised by `collect`. A checkpoint holds the tickets of unfinished work, and a resumed run launches it again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

from pydantic import Field, TypeAdapter

from rubricem_env.domain.errors import BoundaryError, UsageError
from rubricem_env.domain.inputs import validating

Result = TypeVar("Result")
Step = Annotated[int, Field(strict=True, gt=0)]


class Ticket(NamedTuple):
    """One piece of work: the reflection on the question `key` as it was met in `step`."""

    step: Step
    key: str

    def __str__(self) -> str:
        return f"the reflection of step {self.step} on {self.key!r}"


_STATE = TypeAdapter(tuple[dict[str, Step], list[Ticket], list[tuple[Step, str, Any]], list[tuple[Step, str, str]]])
"""The latest step of each question, and the rows of pending, done and failed work."""


class Deferred(Generic[Result]):
    """A registry of background work by ticket. It belongs to one event loop, and owns the tasks it starts."""

    def __init__(self, work: Callable[[Ticket], Awaitable[Result]], kind: type[Result]) -> None:
        """`kind` is the type of a result, by which it is saved as JSON."""
        self._work = work
        self._results = TypeAdapter(kind)
        self._tasks: dict[Ticket, asyncio.Task[None]] = {}
        self._unlaunched: list[Ticket] = []
        self._done: dict[Ticket, Result] = {}
        self._failed: dict[Ticket, str] = {}
        self._latest: dict[str, int] = {}
        """The step of the latest work on each question."""

    @property
    def pending(self) -> tuple[Ticket, ...]:
        """Work without an ending: running, or waiting to be launched again."""
        running = (ticket for ticket in self._tasks if not self._has_ended(ticket))
        return (*running, *self._unlaunched)

    def launch(self, ticket: Ticket) -> None:
        """Start the work of `ticket` in the background of the running loop.

        Raises:
            UsageError: that ticket is running or uncollected.
        """
        if ticket in self._tasks or self._has_ended(ticket) or ticket in self._unlaunched:
            raise UsageError(f"{ticket} is running or uncollected already; launch each question once a step.")
        self._start(ticket)

    def relaunch(self) -> None:
        """Start again what was pending when the state was saved, or when `cancel` was called."""
        again = self._unlaunched
        self._unlaunched = []
        for ticket in again:
            self._start(ticket)

    def collect(self, *, step: int) -> tuple[list[tuple[Ticket, Result]], list[tuple[Ticket, str]]]:
        """All work of earlier steps that ended since the last call: results, and reasons of failures. Never waits.

        Both are in the order of step and key. Work that was late has a ticket of more than one step before.
        """
        self._sweep()
        done = [(ticket, self._done.pop(ticket)) for ticket in sorted(self._done) if ticket.step < step]
        failed = [(ticket, self._failed.pop(ticket)) for ticket in sorted(self._failed) if ticket.step < step]
        return done, failed

    async def wait(self, key: str, *, timeout: float) -> None:
        """Wait until the latest work on `key` has ended, at most `timeout` seconds."""
        task = self._tasks.get(Ticket(self._latest.get(key, 0), key))
        if task is not None and not task.done():
            await asyncio.wait({task}, timeout=timeout)

    async def drain(self) -> None:
        """Wait for all running work: for a synchronous run to compare with, and for the end of a run."""
        running = [task for task in self._tasks.values() if not task.done()]
        if running:
            await asyncio.wait(running)

    async def cancel(self) -> None:
        """Stop all running work and wait until it has stopped; its tickets stay pending."""
        for task in self._tasks.values():
            task.cancel()
        await self.drain()
        for ticket in [ticket for ticket, task in self._tasks.items() if task.cancelled()]:
            del self._tasks[ticket]
            self._unlaunched.append(ticket)

    def state_dict(self) -> dict[str, Any]:
        """Endings that nobody collected, and the tickets of the rest; as JSON."""
        return self.freeze()()

    def freeze(self) -> Callable[[], dict[str, Any]]:
        """The state as of now; calling it, in any thread, makes JSON of it."""
        state = {
            "pending": [list(ticket) for ticket in sorted(self.pending)],
            "failed": [[*ticket, self._failed[ticket]] for ticket in sorted(self._failed)],
            "latest": dict(self._latest),
        }
        done = sorted(self._done.items(), key=lambda ending: ending[0])
        return lambda: {
            **state,
            "done": [[*ticket, self._results.dump_python(result, mode="json")] for ticket, result in done],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state; call `relaunch` once the loop runs. Running work must be cancelled first.

        Raises:
            UsageError: work is running, or this is no state of such work.
        """
        if any(not task.done() for task in self._tasks.values()):
            raise UsageError("work is still running; await cancel() before load_state_dict().")
        with validating("the state of the reflections is none that a run has saved", error=UsageError):
            names = ("latest", "pending", "done", "failed")
            latest, pending, done, failed = _STATE.validate_python([state[name] for name in names])
        endings = [Ticket(step, key) for step, key, _ in (*done, *failed)]
        if len({*pending, *endings}) < len(pending) + len(endings):
            raise UsageError("the state of the reflections holds a ticket twice.")
        self._done = {Ticket(step, key): self._results.validate_python(form, strict=False) for step, key, form in done}
        self._failed = {Ticket(step, key): reason for step, key, reason in failed}
        self._tasks = {}
        self._unlaunched = pending
        self._latest = latest

    def _start(self, ticket: Ticket) -> None:
        self._latest[ticket.key] = max(ticket.step, self._latest.get(ticket.key, ticket.step))
        self._tasks[ticket] = asyncio.get_running_loop().create_task(self._run(ticket), name=str(ticket))

    async def _run(self, ticket: Ticket) -> None:
        """The work and its ending. Cancelled work has none."""
        try:
            self._done[ticket] = await self._work(ticket)
        except BoundaryError as failure:
            self._failed[ticket] = str(failure)

    def _has_ended(self, ticket: Ticket) -> bool:
        return ticket in self._done or ticket in self._failed

    def _sweep(self) -> None:
        """Remove finished tasks; raise bugs, keep the tickets of cancelled work."""
        for ticket in [ticket for ticket, task in self._tasks.items() if task.done()]:
            task = self._tasks.pop(ticket)
            if task.cancelled():
                self._unlaunched.append(ticket)
            else:
                task.result()
