"""The lock of a run's folder, which one process at a time may write."""

import fcntl
import os
from pathlib import Path

from rubricem_env.domain.errors import ConfigError
from rubricem_records.files.line_file import LineFile

RUN_LOCK = ".lock"


def lock_folder(folder: Path, *, key: str = "out") -> LineFile:
    """Make the folder of a run, named as `key` in its config, and keep other processes from writing it until `close`.

    A process that is started with a locked file as its standard input shares the lock.

    Raises:
        ConfigError: the folder cannot be written to, or another process has locked it.
    """
    lock = LineFile(folder / RUN_LOCK)
    try:
        if _is_standard_input(lock.path):
            fcntl.flock(0, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            lock.lock()
    except BlockingIOError as cause:
        raise ConfigError(f"another process trains in {folder}; wait for it, or choose another `{key}`.") from cause
    except OSError as cause:
        raise ConfigError(
            f"cannot write to {key}, {folder}: {cause.strerror}. Make room, or choose another folder."
        ) from cause
    return lock


def _is_standard_input(path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(0), path.stat())
    except OSError:
        return False
