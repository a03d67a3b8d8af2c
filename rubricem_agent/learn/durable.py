"""Files that are on the disk when the call returns, and their hashes."""

import hashlib
import os
from pathlib import Path


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
