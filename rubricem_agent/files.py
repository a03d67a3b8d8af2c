"""Files that are read and written with one sentence for each failure, and that survive a kill.

Atomic writes, append-only journals, locks, logs cut back to a step, and hashes of files.
"""

import fcntl
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
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


def sha256(path: Path) -> str:
    """The hash of a file's bytes, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class LineFile:
    """An append-only file of lines, the base of every journal and log.

    A line counts once its line break is written: a kill leaves at most the last line truncated. An appended line
    outlives the process. One process writes at a time: `lock` enforces it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._locked = -1

    def read(self) -> list[bytes]:
        """The complete lines, without their line breaks; none where there is no file. A truncated last line is skipped."""
        return self.path.read_bytes().split(b"\n")[:-1] if self.path.exists() else []

    def read_rest(self) -> bytes:
        """What stands after the last line break: a truncated last line, or nothing."""
        return self.path.read_bytes().rpartition(b"\n")[2] if self.path.exists() else b""

    def repair(self) -> int:
        """Remove a truncated last line; returns the number of bytes removed."""
        if not self.path.exists():
            return 0
        content = self.path.read_bytes()
        end = content.rfind(b"\n") + 1
        if end < len(content):
            os.truncate(self.path, end)
        return len(content) - end

    def append(self, lines: Sequence[bytes]) -> int:
        """Write the lines in one piece, each with a line break; returns the byte offset of the first.

        Raises:
            OSError: the disk refuses, or has no room for all of them; then none of them is left in the file.
        """
        content = b"".join(line + b"\n" for line in lines)
        if self._locked < 0:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        file = self._locked if self._locked >= 0 else os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            start = os.lseek(file, 0, os.SEEK_END)
            _write_all(file, content, start=start)
        finally:
            if file != self._locked:
                os.close(file)
        return start

    def lock(self) -> None:
        """Keep other processes from writing until `close`.

        Raises:
            BlockingIOError: another process holds the lock.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._locked = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self._locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise

    def fileno(self) -> int:
        """The descriptor that holds the lock, to hand it over to a process as its standard input."""
        return self._locked

    def close(self) -> None:
        """Release the lock; safe to call twice."""
        if self._locked >= 0:
            os.close(self._locked)
            self._locked = -1


def _write_all(file: int, content: bytes, *, start: int) -> None:
    written = 0
    try:
        while written < len(content):
            written += os.write(file, content[written:])
    except OSError:
        with suppress(OSError):  # a device cannot be truncated
            os.ftruncate(file, start)
        raise


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


def trim_log(path: Path, step: int) -> None:
    """Drop the lines of steps after `step`, which the resumed run writes again, and lines that are not complete JSON.

    Raises:
        ConfigError: the disk refuses; the log is unchanged.
    """
    if not path.is_file():
        return
    way_out = "make room or make the folder writable, then run the same command again to resume."
    with writing(path, f"The steps after {step} are still in the log, which is unchanged; {way_out}"):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        write_atomic(path, "".join(f"{line}\n" for line in lines if _step_of(line) <= step))


def _step_of(line: str) -> float:
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf
