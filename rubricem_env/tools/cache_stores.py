"""Where results of tools are cached: in memory, or in an SQLite file."""

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from rubricem_env.domain.errors import FileFormatError

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
            self._connection = _open(self._path)
            self._owner = os.getpid()
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
