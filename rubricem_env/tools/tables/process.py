"""Answers queries over the tables of one place, from standard input: `python -m ... FOLDER_OR_FILE`.

It is a process of `RunSql`: it has a limit of memory, can write no file, and whoever started it ends it after a time.
"""

import json
import os
import resource
import sys
from pathlib import Path

from rubricem_env.domain.errors import ConfigError
from rubricem_env.tools.tables.answers import Engine, QueryError, QueryRefused
from rubricem_env.tools.tables.files import is_sqlite, table_files

_MEMORY = 3 << 30


def open_engine(place: Path) -> Engine:
    """The engine of a folder or a SQLite file; raises ConfigError where there are no tables."""
    if is_sqlite(place):
        from rubricem_env.tools.tables.sqlite_engine import SqliteEngine

        return SqliteEngine.open(place)
    from rubricem_env.tools.tables.duckdb_engine import DuckDBEngine

    return DuckDBEngine.open(table_files(place))


def limit_process() -> None:
    """No more memory than `_MEMORY`, and no file may grow: an engine that was tricked into writing fails."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


def reply_to(engine: Engine, request: str) -> object:
    """The tables where no query is given, else the answer or what is wrong with the query."""
    query, rows = json.loads(request)
    if query is None:
        return {"dialect": engine.dialect, "tables": engine.tables}
    try:
        return engine.answer(query, rows)
    except QueryError as problem:
        return {"problem": str(problem), "is_refused": isinstance(problem, QueryRefused)}


def main() -> None:
    """Answer until standard input ends; a process that is out of memory ends, for what it has lost is unknown."""
    limit_process()
    replies = sys.stdout
    sys.stdout = sys.stderr
    try:
        engine = open_engine(Path(sys.argv[1]))
    except ConfigError as problem:
        replies.write(json.dumps({"problem": str(problem)}) + "\n")
        return
    for request in sys.stdin:
        try:
            reply = json.dumps(reply_to(engine, request))
        except MemoryError:
            os._exit(1)
        replies.write(reply + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
