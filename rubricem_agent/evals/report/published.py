"""The paper's two tables as a report shows them, each row with what makes it differ from ours."""

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from rubricem_agent.evals.reference import reference_rows
from rubricem_env.domain.base import Frozen, Text

TABLES = ("rubricem_table1_longform", "rubricem_table2_shortform")
OWN_BACKEND = ("RubricEM", "Qwen3-8B + Our Search", "Gemini 3.1 Pro + Search")
OTHER_BACKEND = "other search backend"


class PublishedRow(Frozen):
    """One system; None where nothing was published."""

    system: Text
    values: tuple[float | None, ...]
    flags: tuple[Text, ...]
    """Such as "HealthBench n=100 per DR Tulu"."""


class PublishedTable(Frozen):
    """One table, in percent."""

    source: Text
    columns: tuple[Text, ...]
    rows: tuple[PublishedRow, ...]


def published_tables(titles: Sequence[str]) -> tuple[PublishedTable, ...]:
    """The tables that have a column for one of the benchmarks."""
    tables = (_table(reference_rows()[name]) for name in TABLES)
    return tuple(table for table in tables if set(titles) & set(table.columns))


def _table(written: JsonValue) -> PublishedTable:
    assert isinstance(written, dict)
    columns, rows = written["columns"], written["rows"]
    assert isinstance(columns, list)
    assert isinstance(rows, dict)
    flags = _flags(written.get("subset_flags"))
    return PublishedTable(
        source=str(written["source"]),
        columns=tuple(map(str, columns)),
        rows=tuple(
            PublishedRow(system=system, values=_numbers(values), flags=(*flags.get(system, ()), *_backend(system)))
            for system, values in rows.items()
        ),
    )


def _numbers(values: JsonValue) -> tuple[float | None, ...]:
    listed = values if isinstance(values, list) else []
    return tuple(float(value) if isinstance(value, int | float) else None for value in listed)


def _backend(system: str) -> tuple[str, ...]:
    return () if system.startswith(OWN_BACKEND) else (OTHER_BACKEND,)


def _flags(written: JsonValue) -> Mapping[str, Sequence[str]]:
    """By system, each flag once with the columns that it holds for."""
    flags: dict[str, dict[str, list[str]]] = {}
    for flag, systems in written.items() if isinstance(written, dict) else ():
        columns = systems if isinstance(systems, dict) else {"": systems}
        for column, listed in columns.items():
            for system in listed if isinstance(listed, list) else []:
                flags.setdefault(str(system), {}).setdefault(flag, []).append(column)
    return {
        system: [f"{', '.join(filter(None, columns))} {flag}".strip() for flag, columns in by_flag.items()]
        for system, by_flag in flags.items()
    }
