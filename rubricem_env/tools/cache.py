"""A tool that remembers: successes only, and equal calls at the same time cost one.

Where cached results lie: in memory for one process, or in a SQLite file for many.

Equal work done once: whoever asks for what is already under way waits for that.
"""

import asyncio
import hashlib
import json
import logging
import os
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, Generic, NamedTuple, Protocol, TypeVar

from pydantic import Field

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import FileFormatError, ToolError, boundary
from rubricem_env.domain.trajectory import ToolCall, ToolResult
from rubricem_env.tools.base import Tool
from rubricem_env.tools.spec import ToolSpec

_BUSY_SECONDS = 10.0


class CacheBounds(Frozen):
    """How long a result is good for, and how many are kept."""

    ttl: Annotated[float, Field(gt=0)] = 10 * 24 * 3600.0
    """Seconds."""
    entries: Annotated[int, Field(ge=1)] = 100_000


class CacheStore(Protocol):
    """Text by key, for a while."""

    async def get(self, key: str) -> str | None: ...

    async def put(self, key: str, text: str) -> None: ...

    async def aclose(self) -> None: ...


class _Entry(NamedTuple):
    text: str
    expires: float


class InMemoryCache:
    """The most recently used entries of one process."""

    def __init__(self, bounds: CacheBounds, clock: Callable[[], float]) -> None:
        self._bounds = bounds
        self._clock = clock
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    async def get(self, key: str) -> str | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.expires <= self._clock():
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return entry.text

    async def put(self, key: str, text: str) -> None:
        self._entries[key] = _Entry(text, self._clock() + self._bounds.ttl)
        self._entries.move_to_end(key)
        while len(self._entries) > self._bounds.entries:
            self._entries.popitem(last=False)

    async def aclose(self) -> None:
        self._entries.clear()


class SqliteStore:
    """One file shared by any number of processes and threads; SQLite's locks keep it whole.

    Work happens in a thread, so that a busy disk never stops the event loop. The clock is wall time, the same for
    all processes.
    """

    def __init__(self, path: Path, bounds: CacheBounds, clock: Callable[[], float]) -> None:
        self._path = path
        self._bounds = bounds
        self._clock = clock
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._owner = 0
        self._writes = 0

    async def get(self, key: str) -> str | None:
        return await asyncio.to_thread(self._get, key)

    async def put(self, key: str, text: str) -> None:
        await asyncio.to_thread(self._put, key, text)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._close)

    def _get(self, key: str) -> str | None:
        with self._lock:
            query = "SELECT text FROM results WHERE key = ? AND expires > ?"
            row = self._connect().execute(query, (key, self._clock())).fetchone()
        return str(row[0]) if row else None

    def _put(self, key: str, text: str) -> None:
        with self._lock, self._connect() as connection:
            insert = "INSERT OR REPLACE INTO results (key, text, expires) VALUES (?, ?, ?)"
            connection.execute(insert, (key, text, self._clock() + self._bounds.ttl))
            self._writes += 1
            # Now and then is enough: a bound on the file's size need not be exact at every moment.
            if self._writes % 256 == 1:
                self._trim(connection)

    def _trim(self, connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM results WHERE expires <= ?", (self._clock(),))
        oldest = "DELETE FROM results WHERE key IN (SELECT key FROM results ORDER BY expires DESC LIMIT -1 OFFSET ?)"
        connection.execute(oldest, (self._bounds.entries,))

    def _connect(self) -> sqlite3.Connection:
        # A connection must not cross a fork.
        if self._connection is None or self._owner != os.getpid():
            self._connection, self._owner = _open(self._path), os.getpid()
        return self._connection

    def _close(self) -> None:
        with self._lock:
            if self._connection is not None and self._owner == os.getpid():
                self._connection.close()
            self._connection = None


def _open(path: Path) -> sqlite3.Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        with connection:
            connection.execute("CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, text TEXT, expires REAL)")
            connection.execute("CREATE INDEX IF NOT EXISTS by_expiry ON results (expires)")
    except (OSError, sqlite3.DatabaseError) as cause:
        raise FileFormatError(
            f"the tool cache {path} cannot be used: {cause}. Delete it or name another file."
        ) from cause
    return connection


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


_FORMAT = "1"
_log = logging.getLogger(__name__)


class CachedTool:
    """The cache in front of one tool. Errors are never kept: the next call tries again."""

    def __init__(self, tool: Tool, store: CacheStore, *, scope: str) -> None:
        """`scope` names what the results depend on beside the call, such as the engine and its model; no secrets."""
        self._tool = tool
        self._store = store
        self._scope = scope
        self._flights: SingleFlight[ToolResult] = SingleFlight()

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    async def call(self, call: ToolCall) -> ToolResult:
        """The remembered result, or the tool's."""
        key = cache_key(call, self._scope)
        found = await self._remembered(key)
        if found is not None:
            return found
        return await self._flights.run(key, lambda: self._look_up(key, call))

    async def _look_up(self, key: str, call: ToolCall) -> ToolResult:
        # Once more: an equal call may have ended since this one looked.
        found = await self._remembered(key)
        if found is not None:
            return found
        result = await self._tool.call(call)
        if not result.status.is_error:
            await self._remember(key, result)
        return result

    async def _remembered(self, key: str) -> ToolResult | None:
        """None as well for an entry that is damaged or of another release: it is asked for again and replaced."""
        try:
            with boundary(ToolError, "read the tool cache"):
                kept = await self._store.get(key)
                return ToolResult.model_validate_json(kept) if kept is not None else None
        except ToolError as failure:
            _log.warning("%s", failure)
            return None

    async def _remember(self, key: str, result: ToolResult) -> None:
        """A full disk or a locked file costs the entry, not the call."""
        try:
            with boundary(ToolError, "write the tool cache"):
                await self._store.put(key, result.model_dump_json(exclude={"executed"}))
        except ToolError as failure:
            _log.warning("%s", failure)


def cache_key(call: ToolCall, scope: str) -> str:
    """Equal for calls that ask the same; case counts, because it does in addresses."""
    asked = (_FORMAT, scope, call.name, " ".join(call.query.split()), call.parameters)
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()
