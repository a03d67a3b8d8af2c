"""Questions over the tables of a world, each with its right number and the wrong number of each usual mistake."""

import sqlite3
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

from rubricem_env.domain.base import Frozen
from rubricem_env.world.names import SPLITS, Split
from rubricem_env.world.tables.rows import YEARS, TableRows

MistakeKind = Literal["missing_filter", "wrong_unit", "stale_table", "doubled_table", "wrong_join"]
MISTAKES: tuple[MistakeKind, ...] = get_args(MistakeKind)
TableQuestionKind = Literal["flow", "volume", "peak", "permits"]
OUTDATED = ("stations_2019", "readings_merged", "permits_2019")
"""The tables that no question needs."""
_LEAST_MISTAKES = 2


class TableMistake(Frozen):
    """A query that looks right, and the wrong number that it gives."""

    kind: MistakeKind
    sql: str
    value: str


class TableQuestion(Frozen):
    """What is asked and, apart from it, what is true. Only `question` may reach a policy."""

    id: str
    split: Split
    kind: TableQuestionKind
    question: str
    tables: tuple[str, ...]
    """The tables that are needed."""
    filters: tuple[str, ...]
    """The values that the rows must have: a place, a year, a status."""
    unit: str
    sql: str
    value: str
    """The right number, as a query shows it."""
    mistakes: tuple[TableMistake, ...]


class _Form(NamedTuple):
    """One kind of question: its words, its query, and what each mistake replaces in that query."""

    words: str
    sql: str
    tables: tuple[str, ...]
    status: str
    unit: str
    by: Literal["river", "region"]
    mistakes: Mapping[MistakeKind, tuple[str, str]]


_FLOW = "CASE unit WHEN 'l/s' THEN flow / 1000 ELSE flow END"
_VOLUME = "CASE unit WHEN 'ML' THEN volume * 1000 ELSE volume END"
_JOIN = "FROM readings JOIN stations ON station = stations.id"
_JOINED: Mapping[MistakeKind, tuple[str, str]] = MappingProxyType(
    {
        "missing_filter": (" AND status = 'ok'", ""),
        "wrong_unit": (_FLOW, "flow"),
        "wrong_join": ("station = stations.id", "readings.id = stations.id"),
    }
)
_FORMS: Mapping[TableQuestionKind, _Form] = MappingProxyType(
    {
        "flow": _Form(
            "What is the total flow in {region} in {year}, in m3/s? Void readings do not count.",
            f"SELECT round(sum({_FLOW}), 1) AS flow {_JOIN} WHERE region = '{{region}}' AND year = {{year}} "
            "AND status = 'ok'",
            ("readings", "stations"),
            "ok",
            "m3/s",
            "region",
            {
                **_JOINED,
                "stale_table": (_JOIN, _JOIN.replace("stations", "stations_2019")),
                "doubled_table": ("FROM readings", "FROM readings_merged"),
            },
        ),
        "volume": _Form(
            "What is the total volume of the permits on {river} in {year}, in m3? Revoked permits do not count.",
            f"SELECT sum({_VOLUME}) AS volume FROM permits WHERE river = '{{river}}' AND year = {{year}} "
            "AND status = 'valid'",
            ("permits",),
            "valid",
            "m3",
            "river",
            {
                "missing_filter": (" AND status = 'valid'", ""),
                "wrong_unit": (_VOLUME, "volume"),
                "stale_table": ("FROM permits", "FROM permits_2019"),
            },
        ),
        "peak": _Form(
            "What is the highest flow on {river} in {year}, in m3/s? Void readings do not count.",
            f"SELECT round(max({_FLOW}), 1) AS flow {_JOIN} WHERE river = '{{river}}' AND year = {{year}} "
            "AND status = 'ok'",
            ("readings", "stations"),
            "ok",
            "m3/s",
            "river",
            _JOINED,
        ),
        "permits": _Form(
            "How many permits of {year} are on rivers of {region}? Revoked permits do not count.",
            "SELECT count(DISTINCT permits.id) AS permits FROM permits JOIN stations ON permits.river = stations.river "
            "WHERE region = '{region}' AND year = {year} AND status = 'valid'",
            ("permits", "stations"),
            "valid",
            "",
            "region",
            {
                "missing_filter": (" AND status = 'valid'", ""),
                "wrong_join": ("DISTINCT ", ""),
                "stale_table": (
                    "JOIN stations ON permits.river = stations.river",
                    "JOIN stations_2019 ON permits.river = stations_2019.river",
                ),
            },
        ),
    }
)


def ask_table_questions(rows: TableRows) -> tuple[TableQuestion, ...]:
    """Every question of the kinds above whose number differs from that of its mistakes, in the order of the splits.

    A mistake that gives no number, or the right one, is left out; a question with fewer than two is not asked.
    """
    connection = rows.loaded()
    asked: list[TableQuestion] = []
    for split in SPLITS:
        for kind, form in _FORMS.items():
            places = _places(rows, split, form.by)
            drafts = (_question(connection, kind, split, place, year) for place in places for year in YEARS)
            asked += (question for question in drafts if question is not None)
    connection.close()
    return tuple(asked)


def _places(rows: TableRows, split: Split, by: Literal["river", "region"]) -> tuple[str, ...]:
    names = (river.name if by == "river" else river.region for river in rows.rivers if river.split == split)
    return tuple(dict.fromkeys(names))


def _question(
    connection: sqlite3.Connection, kind: TableQuestionKind, split: Split, place: str, year: int
) -> TableQuestion | None:
    form = _FORMS[kind]
    words = {form.by: place, "year": str(year)}
    sql = form.sql.format_map(words)
    value = number_of(connection, sql)
    if not value:
        return None
    mistakes = tuple(_mistakes(connection, form, sql, value))
    if len(mistakes) < _LEAST_MISTAKES:
        return None
    return TableQuestion(
        id=f"{split}-{kind}-{place.lower().replace(' ', '-')}-{year}",
        split=split,
        kind=kind,
        question=form.words.format_map(words),
        tables=form.tables,
        filters=(place, str(year), form.status),
        unit=form.unit,
        sql=sql,
        value=value,
        mistakes=mistakes,
    )


def _mistakes(connection: sqlite3.Connection, form: _Form, sql: str, value: str) -> Iterator[TableMistake]:
    for kind, (right, wrong) in form.mistakes.items():
        # The alias of a doubled table keeps the rest of the query as it is.
        mistaken = sql.replace(right, wrong)
        given = number_of(connection, mistaken)
        if given not in ("", value):
            yield TableMistake(kind=kind, sql=mistaken, value=given)


def number_of(connection: sqlite3.Connection, sql: str) -> str:
    """The one number that a query gives, without trailing zeros; empty where it gives none."""
    (given,) = connection.execute(sql).fetchone()
    if given is None:
        return ""
    return str(int(given)) if given == int(given) else str(given)
