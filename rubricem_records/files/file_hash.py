"""The hash of a file's bytes."""

import hashlib
from pathlib import Path


def sha256(path: Path) -> str:
    """The hash of a file's bytes, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
