"""What a trainer writes to its error stream, and how its last start failed."""

from pathlib import Path

from rubricem_records.files.atomic_files import writing
from rubricem_records.files.line_file import LineFile

ERRORS_FILE = "trainer.err"
_FAILED = "failed: "


def note_failure(folder: Path, sentence: str) -> None:
    """Write below the errors of a start why it failed; the next start begins the file anew.

    Raises:
        ConfigError: the disk refuses.
    """
    path = folder / ERRORS_FILE
    with writing(path, "Make room, or make the folder writable."):
        LineFile(path).append([f"{_FAILED}{' '.join(sentence.split())}".encode()])


def read_failure(folder: Path) -> str:
    """Why the last start failed; empty where it did not, or has not ended."""
    path = folder / ERRORS_FILE
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    return lines[-1].removeprefix(_FAILED) if lines and lines[-1].startswith(_FAILED) else ""
