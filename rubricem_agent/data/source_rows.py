"""The rows of somebody's data set, one after the other, each with the number by which a message can name it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rubricem_env.domain.errors import FileFormatError


class SourceRow(NamedTuple):
    """One row as it was found."""

    number: int
    """The line of the file, or the place in the array or table, from 1."""
    content: object
    problem: str = ""
    """Why it could not be read; empty for a row that could."""


def stream_rows(path: Path) -> Iterator[SourceRow]:
    """The rows of a file of JSON lines, blank lines passed over, or of one JSON array where the file is one.

    JSON lines are read one at a time, so their file may be larger than the memory.

    Raises:
        FileFormatError: the file cannot be read, or is one JSON value that is no array.
    """
    try:
        with path.open("rb") as file:
            if path.suffix.casefold() == ".json" and file.peek(64).lstrip()[:1] == b"[":
                yield from _array_rows(file.read(), path)
                return
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield _read_line(line, number)
    except OSError as cause:
        raise FileFormatError(
            f"cannot read the data set {path}: {cause.strerror or cause}. Give the path of a JSONL file, or "
            "hf:OWNER/NAME for one on the hub."
        ) from cause


def _read_line(line: bytes, number: int) -> SourceRow:
    try:
        return SourceRow(number, json.loads(line))
    except (ValueError, RecursionError) as cause:
        return SourceRow(number, None, f"not JSON: {cause}")


def _array_rows(content: bytes, path: Path) -> Iterator[SourceRow]:
    try:
        rows = json.loads(content)
    except (ValueError, RecursionError) as cause:
        raise FileFormatError(f"{path} begins as a JSON array and is none: {cause}. Was the file cut off?") from cause
    yield from (SourceRow(number, row) for number, row in enumerate(rows, start=1))
