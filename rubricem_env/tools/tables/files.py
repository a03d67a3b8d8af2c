"""The files that hold tables: those of a folder, or one SQLite file."""

import re
from pathlib import Path
from typing import Literal, NamedTuple

from rubricem_env.domain.errors import ConfigError

MAX_TABLES = 100
_SUFFIXES = {".csv": "csv", ".tsv": "csv", ".csv.gz": "csv", ".tsv.gz": "csv", ".parquet": "parquet"}
_SQLITE_HEAD = b"SQLite format 3\0"
_PATTERN = re.compile(r"[*?\[\]{}]")
_WAY_OUT = "Give a folder with CSV or Parquet files, or a SQLite file"


class TableFile(NamedTuple):
    """A file that is one table."""

    table: str
    """The name of the file without its ending."""
    path: Path
    """Without links."""
    kind: Literal["csv", "parquet"]


def is_sqlite(path: Path) -> bool:
    """Whether the path is a SQLite file, by its first bytes."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE_HEAD)) == _SQLITE_HEAD
    except OSError as cause:
        raise ConfigError(f"cannot read {path}: {cause.strerror}. {_WAY_OUT}.") from cause


def table_files(folder: Path) -> tuple[TableFile, ...]:
    """The tables of a folder, by name; what lies in folders below it, and files of other kinds, are not tables.

    Raises:
        ConfigError: there is no such folder or no table in it, two files give one table, a file lies outside the folder
            or is a pipe or a device, or a name has a character that the engine reads as a pattern.
    """
    if not folder.is_dir():
        raise ConfigError(f"there is no folder or SQLite file {folder}. {_WAY_OUT}.")
    home = folder.resolve()
    found: dict[str, TableFile] = {}
    for path in sorted(home.iterdir()):
        suffix = next((suffix for suffix in _SUFFIXES if path.name.lower().endswith(suffix)), "")
        if not suffix or path.name.startswith(".") or path.is_dir():
            continue
        real = path.resolve()
        if not real.is_relative_to(home):
            raise ConfigError(f"{path} is a link to a file outside of {home}; only what lies in it is read. Copy it.")
        if not real.is_file():
            raise ConfigError(f"{path} is no file, or cannot be reached. Remove it, or give another folder.")
        if _PATTERN.search(str(real)):
            raise ConfigError(f"{real} has one of * ? [ ] {{ }} in its name, which would be a pattern. Rename it.")
        name = path.name[: -len(suffix)]
        if name.lower() in found:
            twin = found[name.lower()].path.name
            raise ConfigError(f"{twin} and {path.name} in {folder} are both the table {name!r}. Rename one of them.")
        found[name.lower()] = TableFile(name, real, "parquet" if _SUFFIXES[suffix] == "parquet" else "csv")
    if not found:
        raise ConfigError(f"{folder} has no CSV or Parquet file. {_WAY_OUT}.")
    if len(found) > MAX_TABLES:
        raise ConfigError(f"{folder} has {len(found)} tables; at most {MAX_TABLES} are read. Give a smaller folder.")
    return tuple(found.values())
