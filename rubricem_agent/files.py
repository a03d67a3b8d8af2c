"""A file that is whole or not there: written beside its place, forced to the disk, then renamed.

Files that are on the disk when the call returns, and their hashes.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_atomic(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let `write` fill the file. A failure or a kill leaves what stood there before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make the rename itself last."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def write_text(path: Path, text: str) -> None:
    """Write a file and force it to the disk."""
    path.write_text(text, encoding="utf-8")
    flush(path)


def replace_text(path: Path, text: str) -> None:
    """Put new contents in a file's place: whoever looks, or starts again after a kill, finds the old ones or the new."""
    partial = path.with_name(f"{path.name}.partial")
    write_text(partial, text)
    partial.replace(path)
    flush(path.parent)


def flush(path: Path) -> None:
    """Force a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """The hash of a file's bytes, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
