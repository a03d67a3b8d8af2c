"""A process of `RunSql` answers queries from standard input over the tables that its argument names.

It has a limit of memory, can write no file, and whoever started it ends it after a time.
"""

import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

from rubricem_env.domain.errors import ConfigError
from rubricem_env.tools.tables.answers import QueryError, QueryRefused, SqlEngine

_MEMORY = 3 << 30


def limit_process() -> None:
    """No more memory than `_MEMORY`, and no file may grow: an engine that was tricked into writing fails."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


def reply_to(engine: SqlEngine, request: str) -> object:
    """The tables where no query is given, else the answer or what is wrong with the query."""
    query, rows = json.loads(request)
    if query is None:
        return {"dialect": engine.dialect, "tables": engine.tables}
    try:
        return engine.answer(query, rows)
    except QueryError as problem:
        return {"problem": str(problem), "is_refused": isinstance(problem, QueryRefused)}


def serve(open_engine: Callable[[Path], SqlEngine]) -> None:
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
