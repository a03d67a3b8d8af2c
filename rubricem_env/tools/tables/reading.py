"""Refuses a DuckDB query that does more than read the tables, by its syntax tree.

The engine is closed as well (duckdb_engine.py): this gives the sentence, and is the first of two locks.
"""

from collections.abc import Collection, Iterator
from typing import Any

from rubricem_env.tools.tables.answers import QueryError, QueryRefused

_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
_TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest"})
_FUNCTIONS = frozenset({"current_setting", "getenv", "getvariable", "nextval", "currval", "write_log", "query"})
_PREFIXES = ("read_", "pragma_", "duckdb_", "sqlite_", "parquet_", "__internal")
_OWN_SCHEMA = ("", "main")
_SCHEMA_TABLES = frozenset({"tables", "columns"})
_SHOWS = frozenset({"DESCRIBE", "SUMMARY"})
ONLY_READS = "run_sql only reads the tables: write one SELECT, or WITH ... SELECT"


def tables_read(statements: list[Any], tables: Collection[str]) -> tuple[str, ...]:
    """The names of the tables that the statement reads, sorted; a name that the statement itself defines is none.

    Raises:
        QueryRefused: it reads something else, or calls a function that does.
        QueryError: it names a table that is not there.
    """
    if not statements:
        raise QueryError(f"the query has no statement. {ONLY_READS}.")
    if len(statements) > 1:
        raise QueryRefused(f"the query has {len(statements)} statements. {ONLY_READS}.")
    known = {name.lower(): name for name in tables}
    nodes = list(_nodes(statements[0]))
    defined = {str(entry["key"]).lower() for node in nodes for entry in _entries(node)}
    defined |= {str(node.get("cte_name", "")).lower() for node in nodes}
    read = set()
    for node in nodes:
        kind = str(node.get("type", ""))
        if kind.endswith("_NODE") and kind not in _NODES:
            raise QueryRefused(f"the query has a part that is no SELECT. {ONLY_READS}.")
        if kind == "SHOW_REF" and (node.get("table_name") or node.get("show_type") not in _SHOWS):
            raise QueryRefused("of this kind, run_sql takes SHOW TABLES, DESCRIBE table and SUMMARIZE table alone.")
        if kind == "TABLE_FUNCTION":
            _refuse_table_function(node)
        elif "function_name" in node:
            _refuse_function(str(node["function_name"]))
        if kind == "BASE_TABLE":
            name = str(node.get("table_name", ""))
            if _is_of_schema(node) or (name.lower() in defined and name.lower() not in known):
                continue
            read.add(_known_table(node, name, known))
    return tuple(sorted(read - {known[name] for name in defined if name in known}))


def _known_table(node: dict[str, Any], name: str, known: dict[str, str]) -> str:
    if node.get("schema_name", "") in _OWN_SCHEMA and name.lower() in known:
        return known[name.lower()]
    if any(sign in name for sign in "./\\:*"):
        raise QueryRefused(f"{name[:60]!r} is a file or an address, and not one of the tables: {_listed(known)}.")
    raise QueryError(f"there is no table {name[:60]!r}; the tables are {_listed(known)}.")


def _is_of_schema(node: dict[str, Any]) -> bool:
    return str(node.get("schema_name", "")).lower() == "information_schema" and (
        str(node.get("table_name", "")).lower() in _SCHEMA_TABLES
    )


def _refuse_table_function(node: dict[str, Any]) -> None:
    name = str((node.get("function") or {}).get("function_name", "")).lower()
    if name not in _TABLE_FUNCTIONS:
        raise QueryRefused(
            f"the query reads from the function {name[:60]}; it may read the tables, and of functions range, "
            "generate_series and unnest alone."
        )


def _refuse_function(name: str) -> None:
    name = name.lower()
    if name in _FUNCTIONS or name.startswith(_PREFIXES):
        raise QueryRefused(f"the function {name[:60]} reads more than the tables. Write the query without it.")


def _listed(known: dict[str, str]) -> str:
    names = list(known.values())
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def _entries(node: dict[str, Any]) -> list[dict[str, Any]]:
    ctes = node.get("cte_map")
    found = ctes.get("map") if isinstance(ctes, dict) else None
    return [entry for entry in found or [] if "key" in entry]


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Every object of the tree; without recursion, since a query may be deep."""
    ahead = [tree]
    while ahead:
        part = ahead.pop()
        if isinstance(part, dict):
            yield part
            ahead += part.values()
        elif isinstance(part, list):
            ahead += part
