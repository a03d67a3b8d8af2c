"""Tables of a SQLite file, opened read-only, by the sqlite3 of the standard library."""

import re
import sqlite3
from pathlib import Path
from urllib.parse import quote

from rubricem_env.domain.errors import ConfigError
from rubricem_env.tools.tables.answers import QueryError, QueryRefused, SqlAnswer, SqlColumn, SqlTable, cell
from rubricem_env.tools.tables.process import serve
from rubricem_env.tools.tables.reading import ONLY_READS

_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
_FUNCTIONS = frozenset({"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer", "zipfile", "lsmode"})
_HIDDEN = re.compile(r"(?i)sqlite_(?!master$|schema$)|pragma_|dbstat$")
_MAX_BYTES = 10_000_000
"""Bytes of one value, or of one row."""
_MAX_DEPTH = 200
_WORD = re.compile(r"\s*(\w+)")
_READING_WORDS = frozenset({"SELECT", "WITH", "VALUES"})


class SqliteEngine:
    """Every step of a statement is authorised while it is compiled: what is no reading is refused.

    So no compiled statement is kept: the tables that it reads would not be named again.
    """

    dialect = "SQLite"

    def __init__(self, connection: sqlite3.Connection, tables: tuple[SqlTable, ...]) -> None:
        self.tables = tables
        self._connection = connection
        self._names = {table.name for table in tables}
        self._read: set[str] = set()
        self._is_refused = False

    @classmethod
    def open(cls, path: Path) -> "SqliteEngine":
        """Open the file; raises ConfigError where it is damaged or has no table.

        Without a journal beside it the file is taken as unchanging, so that nothing is written beside it either.
        """
        path = path.resolve()
        has_journal = any(path.with_name(path.name + end).exists() for end in ("-wal", "-journal"))
        # Written as bytes: a name may hold what is not UTF-8.
        place = f"file:{quote(bytes(path))}?mode=ro{'' if has_journal else '&immutable=1'}"
        try:
            connection = sqlite3.connect(place, uri=True, cached_statements=0)
            connection.text_factory = lambda text: text.decode("utf-8", "replace")
            connection.execute("PRAGMA query_only = 1")
            connection.execute("PRAGMA trusted_schema = 0")
            connection.execute("PRAGMA temp_store = MEMORY")
            listed = connection.execute(
                "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' "
                "ESCAPE '\\' ORDER BY name"
            )
            tables = tuple(SqlTable(name, _columns(connection, name)) for (name,) in listed.fetchall())
        except sqlite3.Error as problem:
            raise ConfigError(f"{path} cannot be read as a SQLite file: {problem}. Give another one.") from problem
        if not tables:
            raise ConfigError(f"{path} has no table. Give another SQLite file, or a folder of CSV or Parquet files.")
        engine = cls(connection, tables)
        engine._close_to_writing()
        return engine

    def answer(self, query: str, rows: int) -> SqlAnswer:
        """As `SqlEngine` says."""
        self._read, self._is_refused = set(), False
        try:
            found = self._connection.execute(query)
            first = found.fetchmany(rows + 1)
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as problem:
            raise self._problem(problem, query) from problem
        if found.description is None:
            raise QueryError(f"the query has no statement. {ONLY_READS}.")
        columns = tuple(cell(column[0]) for column in found.description)
        read = tuple(sorted(self._read & self._names))
        return SqlAnswer(read, columns, tuple(tuple(map(cell, row)) for row in first[:rows]), len(first) > rows)

    def _close_to_writing(self) -> None:
        self._connection.set_authorizer(self._authorize)
        limits = {
            sqlite3.SQLITE_LIMIT_LENGTH: _MAX_BYTES,
            sqlite3.SQLITE_LIMIT_ATTACHED: 0,
            sqlite3.SQLITE_LIMIT_EXPR_DEPTH: _MAX_DEPTH,
            sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 50,
            sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
        }
        for limit, value in limits.items():
            self._connection.setlimit(limit, value)

    def _authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action == sqlite3.SQLITE_READ and first:
            self._read.add(first)
        is_hidden = action == sqlite3.SQLITE_READ and _HIDDEN.match(first or "") is not None
        is_function = action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _FUNCTIONS
        if action in _ALLOWED and not is_hidden and not is_function:
            return sqlite3.SQLITE_OK
        self._is_refused = True
        return sqlite3.SQLITE_DENY

    def _problem(self, problem: Exception, query: str) -> QueryError:
        words = " ".join(str(problem).split())
        begins = _WORD.match(query)
        if "one statement at a time" in words:
            return QueryRefused(f"the query has several statements. {ONLY_READS}.")
        if begins and begins[1].upper() not in _READING_WORDS:
            return QueryRefused(f"a statement of the kind {begins[1].upper()[:20]} is not run. {ONLY_READS}.")
        if self._is_refused:
            return QueryRefused(f"the query does more than read the tables. {ONLY_READS}.")
        if words.startswith("no such table"):
            words += f"; the tables are {', '.join(sorted(self._names)[:20])}"
        return QueryError(f"{words}.")


def _columns(connection: sqlite3.Connection, table: str) -> tuple[SqlColumn, ...]:
    rows = connection.execute("SELECT name, type FROM pragma_table_info(?)", (table,)).fetchall()
    return tuple(SqlColumn(name, kind or "ANY") for name, kind in rows)


if __name__ == "__main__":
    serve(SqliteEngine.open)
