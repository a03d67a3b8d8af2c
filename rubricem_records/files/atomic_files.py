"""Writes files in one step that survives a kill, and answers a full disk with one sentence."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from rubricem_env.domain.errors import ConfigError

MAKE_ROOM = "Make room, then run the same command again to resume."
"""The way out where a run can be resumed."""


@contextmanager
def writing(path: Path, way_out: str) -> Iterator[None]:
    """Turn the disk's refusal into a ConfigError that names the path and the way out."""
    try:
        yield
    except OSError as cause:
        raise ConfigError(f"cannot write to {path}: {cause.strerror or cause}. {way_out}") from cause


def write_atomic(path: Path, content: bytes | str | Callable[[BinaryIO], object]) -> None:
    """Replace a file in one step and force it to the disk; a failure or a kill leaves the old file.

    `content` is the new bytes or text, or a function that writes them to an open file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with partial.open("wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    flush(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a file in place and force it to the disk, as in a folder that is renamed afterwards."""
    path.write_text(text, encoding="utf-8")
    flush(path)


def flush(path: Path) -> None:
    """Force a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
