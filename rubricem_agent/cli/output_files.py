"""The files and folders that a command writes, opened so that an error names the option."""

from pathlib import Path
from tempfile import TemporaryFile

from rubricem_records.files.atomic_files import writing


def write_out(file: Path, text: str, *, option: str, makes_folder: bool = False) -> None:
    """Write a file; raises a ConfigError that names the option where it cannot be written."""
    with writing(file, f"Choose another file with {option}."):
        if makes_folder:
            file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def open_out(folder: Path) -> None:
    """Make the folder of --out; raises ConfigError where it cannot be made or written to."""
    with writing(folder, "Choose another folder with --out."):
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()
