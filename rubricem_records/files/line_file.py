"""An append-only file of lines, the base of every journal and log."""

import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


class LineFile:
    """An append-only file of lines, the base of every journal and log.

    A line counts once its line break is written: a kill leaves at most the last line truncated. An appended line
    outlives the process. One process writes at a time: `lock` enforces it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._locked = -1

    def read(self) -> list[bytes]:
        """The complete lines, without their line breaks; none where there is no file."""
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
        return self.append_bytes(b"".join(line + b"\n" for line in lines))

    def append_bytes(self, content: bytes) -> int:
        """Write bytes in one piece, as `append` does."""
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
