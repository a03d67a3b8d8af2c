"""A cache in front of a tool. Results are kept in memory for one process, or in a SQLite file for many.

Only successes are kept. Equal calls at the same time share one call of the tool.
"""

import asyncio
import hashlib
import json
import logging
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeAlias

from rubricem_env.domain.errors import FileFormatError, ToolError, boundary
from rubricem_env.domain.trajectory import ToolCall, ToolResult
from rubricem_env.tools.base import Tool

_BUSY_SECONDS = 10.0
TTL_SECONDS = 10 * 24 * 3600.0
MAX_ENTRIES = 100_000


class InMemoryCache:
    """The most recently used entries of one process; `ttl` is in seconds."""

    def __init__(self, clock: Callable[[], float], *, ttl: float = TTL_SECONDS, max_entries: int = MAX_ENTRIES) -> None:
        self._clock = clock
        self._ttl = ttl
        self._max_entries = max_entries
        self._entries: dict[str, tuple[str, float]] = {}
        """The one that was used last is the last."""

    async def get(self, key: str) -> str | None:
        text, expires = self._entries.pop(key, (None, 0.0))
        if text is None or expires <= self._clock():
            return None
        self._entries[key] = text, expires
        return text

    async def put(self, key: str, text: str) -> None:
        self._entries.pop(key, None)
        self._entries[key] = text, self._clock() + self._ttl
        while len(self._entries) > self._max_entries:
            del self._entries[next(iter(self._entries))]

    async def aclose(self) -> None:
        self._entries.clear()


class SqliteStore:
    """One file, shared by any number of processes and threads through SQLite's locks.

    It is read and written in a thread, so that a busy disk never stops the event loop. The clock is wall time, the
    same for all processes; `ttl` is in seconds.
    """

    def __init__(
        self, path: Path, clock: Callable[[], float], *, ttl: float = TTL_SECONDS, max_entries: int = MAX_ENTRIES
    ) -> None:
        self._path = path
        self._clock = clock
        self._ttl = ttl
        self._max_entries = max_entries
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
            connection.execute(insert, (key, text, self._clock() + self._ttl))
            self._writes += 1
            # Once in a while is enough: the limit on the file's size need not be exact.
            if self._writes % 256 == 1:
                connection.execute("DELETE FROM results WHERE expires <= ?", (self._clock(),))
                newest = "SELECT key FROM results ORDER BY expires DESC LIMIT -1 OFFSET ?"
                connection.execute(f"DELETE FROM results WHERE key IN ({newest})", (self._max_entries,))

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
        try:
            # Fails at once where another process is doing it; the mode is the file's, so one is enough.
            with suppress(sqlite3.OperationalError):
                connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, text TEXT, expires REAL)")
            connection.execute("CREATE INDEX IF NOT EXISTS by_expiry ON results (expires)")
        except sqlite3.DatabaseError:
            connection.close()
            raise
    except (OSError, sqlite3.DatabaseError) as cause:
        raise FileFormatError(f"the tool cache {path} cannot be used: {cause}. Delete it or name another.") from cause
    return connection


class CacheStore(Protocol):
    """Where results are kept: in memory, in a file, or by another process."""

    async def get(self, key: str) -> str | None: ...

    async def put(self, key: str, text: str) -> None: ...

    async def aclose(self) -> None: ...


_FORMAT = "1"
_log = logging.getLogger(__name__)


_Waiting: TypeAlias = set["asyncio.Future[ToolResult]"]
"""One future for each caller. A task that is shielded from its callers wakes them a turn of the event loop later."""


class CachedTool:
    """A cache in front of one tool. Errors are never kept: the next call tries again."""

    def __init__(self, tool: Tool, store: CacheStore, *, scope: str) -> None:
        """`scope` names what results depend on besides the call, such as the engine and its model; no secrets."""
        self.spec = tool.spec
        self._tool = tool
        self._store = store
        self._scope = scope
        self._running: dict[tuple[int, str], tuple[asyncio.Task[None], _Waiting]] = {}
        """By event loop and key."""
        self._ended = 0
        """How many tasks have ended."""

    async def call(self, call: ToolCall) -> ToolResult:
        """The cached result, or the tool's.

        Equal calls wait for one task. A cancelled caller leaves the others waiting; the task is cancelled when nobody
        waits any more.
        """
        key, ended = cache_key(call, self._scope), self._ended
        found = await self._read(key)
        if found is not None:
            return found
        slot = (id(asyncio.get_running_loop()), key)
        if slot not in self._running:
            waiting: _Waiting = set()
            self._running[slot] = asyncio.create_task(self._answer(slot, call, waiting, ended=ended)), waiting
        task, waiting = self._running[slot]
        answer: asyncio.Future[ToolResult] = asyncio.get_running_loop().create_future()
        waiting.add(answer)
        try:
            return await answer
        finally:
            waiting.remove(answer)
            if not waiting and not task.done():
                self._leave(slot, waiting)
                task.cancel()

    async def _answer(self, slot: tuple[int, str], call: ToolCall, waiting: _Waiting, *, ended: int) -> None:
        """Look up the call for all that wait."""
        try:
            # Once more where a call has ended since this one looked: it may have been an equal one.
            result = await self._read(slot[1]) if self._ended != ended else None
            if result is None:
                result = await self._tool.call(call)
                if not result.status.is_error:
                    await self._write(slot[1], result)
            for answer in waiting:
                if not answer.done():
                    answer.set_result(result)
        except BaseException as failure:
            for answer in waiting:
                if not answer.done():
                    answer.set_exception(failure)
            if not waiting:
                raise
        finally:
            self._ended += 1
            self._leave(slot, waiting)

    def _leave(self, slot: tuple[int, str], waiting: _Waiting) -> None:
        # A newer task may have the slot of one that was abandoned.
        if slot in self._running and self._running[slot][1] is waiting:
            del self._running[slot]

    async def _read(self, key: str) -> ToolResult | None:
        """None also for an entry that is damaged or of another release: the tool is called and the entry replaced."""
        try:
            with boundary(ToolError, "read the tool cache"):
                text = await self._store.get(key)
                return ToolResult.model_validate_json(text) if text is not None else None
        except ToolError as failure:
            _log.warning("%s", failure)
            return None

    async def _write(self, key: str, result: ToolResult) -> None:
        """A full disk or a locked file loses the entry, not the call."""
        try:
            with boundary(ToolError, "write the tool cache"):
                await self._store.put(key, result.model_dump_json(exclude={"executed"}))
        except ToolError as failure:
            _log.warning("%s", failure)


def cache_key(call: ToolCall, scope: str) -> str:
    """Equal for calls that ask the same; case counts, because it does in addresses."""
    asked = (_FORMAT, scope, call.name, " ".join(call.query.split()), call.parameters)
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()
