"""The folder that --out names, tried before anything is spent on what goes into it."""

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
