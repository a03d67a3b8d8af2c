"""Tables and the answers to queries over them, and how a cell of any type is written as text."""

import math
import re
from decimal import Decimal
from typing import NamedTuple, Protocol

MAX_CELL = 200
"""Characters of one value that are shown."""
_DIGITS = 12
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029|\\]")
_PLAIN_NAME = re.compile(r"[^\W\d]\w*")
MAX_NAME = 64
"""Characters of the name of a table or a column that are shown."""


class SqlColumn(NamedTuple):
    """A column with its type, in the words of its engine."""

    name: str
    type: str


class SqlTable(NamedTuple):
    """A table with its columns."""

    name: str
    columns: tuple[SqlColumn, ...]

    def described(self) -> str:
        """On one line, such as `sales(id BIGINT, name VARCHAR)`."""
        columns = ", ".join(f"{_written(name)} {_cut(_line(kind), MAX_NAME)}" for name, kind in self.columns)
        return f"{_written(self.name)}({columns})"


class SqlAnswer(NamedTuple):
    """The first rows of what a query gives, as text."""

    tables: tuple[str, ...]
    """The tables that were read, in the order of their names."""
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    has_more: bool

    def text(self, most: int) -> str:
        """A line that says how much is shown, the names of the columns, then a line for each row.

        It has at most `most` characters, in whole lines.
        """
        head = " | ".join(self.columns)
        lines: list[str] = []
        room = most - len(head) - MAX_NAME
        for row in self.rows:
            line = " | ".join(row)
            room -= len(line) + 1
            if room < 0:
                break
            lines.append(line)
        if self.has_more or len(lines) < len(self.rows):
            count = f"The first {len(lines)} rows; there are more: filter, aggregate or LIMIT."
        else:
            count = "1 row." if len(lines) == 1 else f"{len(lines)} rows."
        return _cut("\n".join((count, head, *lines)), most)


class QueryError(Exception):
    """The query cannot be answered: it is malformed, names what is not there, or fails on the values."""


class QueryRefused(QueryError):
    """The query would do something else than read the tables."""


class SqlEngine(Protocol):
    """Reads the tables of one place."""

    dialect: str

    @property
    def tables(self) -> tuple[SqlTable, ...]: ...

    def answer(self, query: str, rows: int) -> SqlAnswer:
        """The first rows; raises QueryError, or MemoryError where the engine is out of memory."""
        ...


def cell(value: object) -> str:
    """A value on one line: the same text for the same value, by any engine.

    A number has at most 12 digits after rounding, so that the order of a sum does not show. Control characters, `|` and
    the backslash are escaped.
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes | bytearray | memoryview):
        return _cut(f"0x{bytes(value[:MAX_CELL]).hex()}", MAX_CELL)
    if isinstance(value, int) and value.bit_length() > 4 * MAX_CELL:
        return "a whole number too long to show"
    return _cut(_line(str(value)[: 2 * MAX_CELL]), MAX_CELL)


def _number(value: float) -> str:
    if math.isfinite(value) and value == int(value) and abs(value) < 1e15:
        return str(int(value))
    short = f"{value:.{_DIGITS}g}"
    return short if "e" not in short else repr(float(short))


def _line(text: str) -> str:
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode() if match[0] != "|" else r"\|", text)


def _written(name: str) -> str:
    shown = _cut(_line(name), MAX_NAME)
    return shown if _PLAIN_NAME.fullmatch(shown) else '"' + shown.replace('"', '""') + '"'


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"
