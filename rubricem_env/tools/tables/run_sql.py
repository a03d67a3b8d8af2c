"""The tool `run_sql`: one reading query over a folder of CSV and Parquet files, or over a SQLite file.

Queries run in processes of their own, with limits of rows, bytes, time and memory; one that hangs or breaks its engine
ends that process alone.
"""

import asyncio
import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from rubricem_env.domain.errors import ConfigError, MissingExtraError
from rubricem_env.domain.trajectory import Snippet, ToolCall, ToolResult, ToolStatus
from rubricem_env.llm.usage import Usage
from rubricem_env.tools.failures import ToolFailure
from rubricem_env.tools.limited_processes import LimitedProcesses
from rubricem_env.tools.spec import RUN_SQL_SPEC, ToolSpec
from rubricem_env.tools.tables.answers import SqlAnswer, SqlColumn, SqlTable
from rubricem_env.tools.tables.files import is_sqlite, table_files

MAX_ROWS = 50
MAX_TEXT = 4_000
"""Rows, and characters, of one result."""
MAX_DESCRIPTION = 6_000
"""Characters of the tables in the tool's description."""
_FENCE = re.compile(r"\A\s*```(?:sql)?\s*\n(.*?)\n?\s*```\s*\Z", re.DOTALL | re.IGNORECASE)
_SHOW = re.compile(
    r"""\s*(?:show\s+tables|(?:describe|desc)\s+(?:table\s+)?(["`]?)(?P<table>[^"`;]+)\1)\s*;?\s*""", re.I
)


class RunSql:
    """The tables of one place as a tool. A result is one snippet, whose title names the tables that were read."""

    model = ""
    fee = 0.0
    expected = Usage(calls=1)

    def __init__(
        self, pool: LimitedProcesses, tables: tuple[SqlTable, ...], *, dialect: str, state: str, rows: int
    ) -> None:
        self.tables = tables
        self.spec = _spec_of(tables, dialect)
        self.state = state
        """The files, their sizes and when they changed last: what results depend on besides the query."""
        self.seconds = pool.seconds
        self.processes = pool.processes
        self._pool = pool
        self._rows = rows

    @classmethod
    def open(cls, place: Path, *, rows: int = MAX_ROWS, seconds: float = 20.0, processes: int = 2) -> Self:
        """Read the tables of a folder, or of a SQLite file; at most `processes` queries run at once.

        Raises:
            ConfigError: there are no tables, or one cannot be read.
            MissingExtraError: the place is a folder, and DuckDB is not installed.
        """
        place = place.expanduser()
        engine = "sqlite_engine"
        if not is_sqlite(place):
            engine = "duckdb_engine"
            table_files(place)
            if find_spec("duckdb") is None:
                raise MissingExtraError("duckdb", "sql", "reading CSV and Parquet files with run_sql")
        module = f"{__package__}.{engine}"
        pool = LimitedProcesses(module, [str(place.resolve())], processes=processes, seconds=seconds)
        reply = _read(pool.ask(_request(None, 0)))
        if "tables" not in reply:
            pool.close()
            unread = f"the tables of {place} cannot be read within {seconds:g} s. Give fewer or smaller files."
            raise ConfigError(reply.get("problem", unread))
        tables = tuple(
            SqlTable(name, tuple(SqlColumn(*column) for column in columns)) for name, columns in reply["tables"]
        )
        return cls(pool, tables, dialect=reply["dialect"], state=_state_of(place, rows), rows=rows)

    async def answer(self, call: ToolCall) -> tuple[ToolResult, Usage]:
        """Run a query.

        Raises:
            ToolFailure: it is refused, malformed, or stopped.
        """
        fenced = _FENCE.match(call.query)
        query = fenced[1] if fenced else call.query
        if shown := _SHOW.fullmatch(query):
            return ToolResult.found([self._described(shown["table"])]), self.expected
        loop = asyncio.get_running_loop()
        request = _request(query, self._rows)
        reply = _read(await loop.run_in_executor(self._pool.threads, self._pool.ask, request))
        if not reply:
            raise ToolFailure(
                f"the query was stopped: it took longer than {self.seconds:g} s, or more memory than a query may have. "
                "Ask for less: filter early, aggregate, and let no recursion run on.",
                status=ToolStatus.TIMEOUT,
            )
        if "problem" in reply:
            status = ToolStatus.BLOCKED if reply.get("is_refused") else ToolStatus.ERROR
            raise ToolFailure(reply["problem"], status=status)
        answer = SqlAnswer(*reply["answer"])
        title = f"run_sql on {', '.join(answer.tables) or 'no table'}"
        return ToolResult.found([Snippet(text=answer.text(MAX_TEXT), title=title)]), self.expected

    async def aclose(self) -> None:
        """End the processes."""
        await asyncio.to_thread(self._pool.close)

    def _described(self, name: str | None) -> Snippet:
        wanted = [table for table in self.tables if name is None or table.name.lower() == name.strip().lower()]
        if not wanted:
            known = ", ".join(table.name for table in self.tables[:20])
            raise ToolFailure(f"there is no table {(name or '')[:60]!r}; the tables are {known}.")
        return Snippet(text=_listed(wanted, MAX_TEXT), title="run_sql on no table")


def _spec_of(tables: tuple[SqlTable, ...], dialect: str) -> ToolSpec:
    said = f"{RUN_SQL_SPEC.description} The dialect is {dialect}. The tables: {_listed(tables, MAX_DESCRIPTION)}"
    return RUN_SQL_SPEC.model_copy(update={"description": said})


def _state_of(place: Path, rows: int) -> str:
    files = [place] if place.is_file() else [file.path for file in table_files(place)]
    facts = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return json.dumps(["run_sql", str(place.resolve()), rows, facts])


def _listed(tables: "tuple[SqlTable, ...] | list[SqlTable]", most: int) -> str:
    lines: list[str] = []
    room = most
    for table in tables:
        line = table.described()
        room -= len(line) + 1
        if room < 0:
            names = ", ".join(other.name for other in tables[len(lines) :])
            lines.append(f"and, without their columns here (DESCRIBE name shows them): {names}"[:most])
            break
        lines.append(line)
    return "\n".join(lines)


def _request(query: str | None, rows: int) -> bytes:
    return json.dumps([query, rows]).encode() + b"\n"


def _read(reply: bytes) -> dict[str, Any]:
    """The reply of a process; empty where there is none."""
    read = json.loads(reply) if reply else {}
    return read if isinstance(read, dict) else {"answer": read}
