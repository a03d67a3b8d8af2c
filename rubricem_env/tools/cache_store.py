"""Where cached results lie: in memory for one process, or in a SQLite file for many."""

import asyncio
import os
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NamedTuple, Protocol

from pydantic import Field

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import FileFormatError

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


class MemoryStore:
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
