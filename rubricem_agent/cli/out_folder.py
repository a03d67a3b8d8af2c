"""What --out names, a folder or a file in one, tried before anything is spent on what goes there."""

from pathlib import Path
from tempfile import TemporaryFile

from rubricem_env.domain.errors import ConfigError


def open_out(folder: Path) -> None:
    """Make the folder.

    Raises:
        ConfigError: it cannot be made, or not be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as cause:
        raise ConfigError(f"cannot write to {folder}: {cause.strerror}. Choose another folder with --out.") from cause


def open_out_file(path: Path) -> None:
    """Make the folder that the file goes into.

    Raises:
        ConfigError: the path is a folder, or its folder cannot be made or written to.
    """
    if path.is_dir():
        raise ConfigError(f"--out is {path}, a folder, and a file goes there; write {path / 'trajectory.json'}.")
    open_out(path.parent)
