"""The lock of a run's folder, which one process at a time may write."""

import fcntl
import os
import re
import socket
from pathlib import Path

from rubricem_env.domain.errors import ConfigError
from rubricem_records.files.line_file import LineFile

RUN_LOCK = ".lock"


def lock_folder(folder: Path, *, key: str = "out") -> LineFile:
    """Make the folder of a run, named as `key` in its config, and keep other processes from writing it until `close`.

    A process that is started with a locked file as its standard input shares the lock. The file names the process that
    locked it last, and its machine.

    Raises:
        ConfigError: the folder cannot be written to, or another process has locked it.
    """
    lock = LineFile(folder / RUN_LOCK)
    try:
        if _is_standard_input(lock.path):
            fcntl.flock(0, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            lock.lock()
        os.truncate(lock.path, 0)
        lock.append([f"{os.getpid()} {socket.gethostname()}".encode()])
    except BlockingIOError as cause:
        raise ConfigError(f"another process trains in {folder}{_holder(lock)}, or choose another `{key}`.") from cause
    except OSError as cause:
        raise ConfigError(
            f"cannot write to {key}, {folder}: {cause.strerror}. Make room, or choose another folder."
        ) from cause
    return lock


def _holder(lock: LineFile) -> str:
    """Who holds the lock, as far as the file says it, and how to end it."""
    named = re.fullmatch(rb"(\d+) (\S+)", (lock.read() or [b""])[-1])
    if named is None:
        return "; wait for it"
    pid, host = named[1].decode(), named[2].decode(errors="replace")
    where = "" if host == socket.gethostname() else f" on {host}"
    return f": process {pid}{where}; wait for it, end it with `kill -INT {pid}`{where}"


def _is_standard_input(path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(0), path.stat())
    except OSError:
        return False
