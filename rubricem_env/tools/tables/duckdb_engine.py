"""Tables in CSV and Parquet files, read by DuckDB, which is closed to everything else."""

import json
from collections.abc import Iterable
from pathlib import Path

import duckdb

from rubricem_env.domain.errors import ConfigError
from rubricem_env.tools.tables.answers import QueryError, QueryRefused, SqlAnswer, SqlColumn, SqlTable, cell
from rubricem_env.tools.tables.files import TableFile, table_files
from rubricem_env.tools.tables.process import serve
from rubricem_env.tools.tables.reading import ONLY_READS, tables_read

MEMORY = "1GB"
_WHOLE = 64 << 20
"""Bytes of a CSV file whose types are found by reading all of it; of a larger one `_SAMPLE` lines are read."""
_SAMPLE = 1_000_000
_SETTINGS = (
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET python_enable_replacements = false",
    "SET temp_directory = ''",
    "SET TimeZone = 'UTC'",
)
_LOCKS = ("SET enable_external_access = false", "SET lock_configuration = true")
_SYNTAX = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException)


class DuckDBEngine:
    """Each file is a view: nothing is copied, and a query reads the file as it is then.

    The engine may open these files and no other, loads no extension, writes nothing, and its settings are locked.
    """

    dialect = "DuckDB"

    def __init__(self, connection: duckdb.DuckDBPyConnection, tables: tuple[SqlTable, ...], folder: Path) -> None:
        self.tables = tables
        self._connection = connection
        self._folder = f"{folder}/"

    @classmethod
    def open(cls, files: Iterable[TableFile]) -> "DuckDBEngine":
        """Make the views, then lock the engine; raises ConfigError where a file cannot be read as a table."""
        files = tuple(files)
        # One thread: a sum of many numbers has one order, and the same bytes each time.
        connection = duckdb.connect(config={"threads": 1, "memory_limit": MEMORY})
        for setting in _SETTINGS:
            connection.execute(setting)
        paths = ", ".join(_text(str(file.path)) for file in files)
        connection.execute(f"SET allowed_paths = [{paths}]")
        tables = tuple(_make_view(connection, file) for file in files)
        for lock in _LOCKS:
            connection.execute(lock)
        return cls(connection, tables, files[0].path.parent)

    def answer(self, query: str, rows: int) -> SqlAnswer:
        """As `SqlEngine` says."""
        try:
            read = tables_read(self._statements(query), [table.name for table in self.tables])
            found = self._connection.execute(query)
            columns = tuple(cell(column[0]) for column in found.description or ())
            first = found.fetchmany(rows + 1)
        except duckdb.OutOfMemoryException as cause:
            raise MemoryError from cause
        except _SYNTAX as problem:
            raise QueryError(self._said(problem)) from problem
        except duckdb.PermissionException as problem:
            raise QueryRefused(f"the query reads more than the tables. {ONLY_READS}.") from problem
        except (duckdb.Error, RuntimeError, ValueError, OverflowError, RecursionError) as problem:
            raise QueryError(self._said(problem)) from problem
        return SqlAnswer(read, columns, tuple(tuple(map(cell, row)) for row in first[:rows]), len(first) > rows)

    def _statements(self, query: str) -> list[object]:
        """The syntax tree of each statement; raises QueryRefused where one is no SELECT."""
        (text,) = self._connection.execute("SELECT json_serialize_sql(?)", [query]).fetchone() or ("",)
        tree = json.loads(text)
        if not tree["error"]:
            statements: list[object] = tree["statements"]
            return statements
        kinds = [statement.type.name for statement in self._connection.extract_statements(query)]
        if len(kinds) > 1:
            raise QueryRefused(f"the query has {len(kinds)} statements. {ONLY_READS}.")
        if not kinds:
            raise QueryError(f"the query has no statement. {ONLY_READS}.")
        if kinds != ["SELECT"]:
            kind = "PIVOT" if kinds == ["MULTI"] else kinds[0]
            raise QueryRefused(f"a statement of the kind {kind} is not run. {ONLY_READS}.")
        raise QueryRefused(f"the query is no plain SELECT. {ONLY_READS}.")

    def _said(self, problem: Exception) -> str:
        """The engine's words on one line, without the place of the folder, and without the query that it repeats."""
        words = " ".join(str(problem).partition("\nLINE ")[0].replace(self._folder, "").split())
        return f"{words.rstrip('.') or type(problem).__name__}."


def _make_view(connection: duckdb.DuckDBPyConnection, file: TableFile) -> SqlTable:
    try:
        view = '"' + file.table.replace('"', '""') + '"'
        connection.execute(f"CREATE VIEW {view} AS {_source(connection, file)}")
        described = connection.execute(f"DESCRIBE {view}").fetchall()
    except (duckdb.Error, RuntimeError, ValueError) as problem:
        words = "it is empty" if not file.path.stat().st_size else " ".join(str(problem).split("\n")[:2])[:200]
        raise ConfigError(
            f"{file.path} cannot be read as a table: {words.rstrip('.')}. Correct it, or move it out of the folder."
        ) from problem
    return SqlTable(file.table, tuple(SqlColumn(str(name), str(kind)) for name, kind, *_ in described))


def _source(connection: duckdb.DuckDBPyConnection, file: TableFile) -> str:
    """What reads the file. The form and the types of a CSV file are found once, and not again in each query."""
    path = _text(str(file.path))
    if file.kind == "parquet":
        return f"FROM read_parquet({path})"
    sample = -1 if file.path.stat().st_size <= _WHOLE else _SAMPLE
    sniffed = connection.execute(
        f"SELECT Delimiter, Columns FROM sniff_csv({path}, header = true, null_padding = true, sample_size = {sample})"
    )
    delimiter, columns = sniffed.fetchone() or ("", [])
    types = ", ".join(f"{_text(column['name'])}: {_text(column['type'])}" for column in columns)
    return (
        f"FROM read_csv({path}, header = true, null_padding = true, delim = {_text(delimiter)}, columns = {{{types}}})"
    )


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


if __name__ == "__main__":
    serve(lambda folder: DuckDBEngine.open(table_files(folder)))
