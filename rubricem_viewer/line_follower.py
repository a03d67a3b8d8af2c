"""Follows a file of lines while a run writes it.

A follower of an index returns each whole line once, and all lines again after a resume.
"""

import os
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from pydantic import ValidationError

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.inputs import validating
from rubricem_records.rollouts.run_record import RECORD_VERSION, Header

_MAX_HEADER = 65_536

LineT = TypeVar("LineT", bound=Frozen)


class LineSpan(NamedTuple):
    """Where a line lies in its file."""

    offset: int
    size: int
    """The bytes of the line, without its line break."""


class LineFollower(Generic[LineT]):
    """One file. A line that cannot be read is passed over and counted; the last line counts once it ends.

    The lines are validated with the header as their context.

    The first line of an index tells the recording; a log without one is read anew where it has become shorter.
    """

    def __init__(self, path: Path, kind: type[LineT], *, is_index: bool = True) -> None:
        self.path = path
        self._kind: type[LineT] = kind
        self._is_index = is_index
        self.end = 0
        """The bytes that were read."""
        self.header: Header | None = None
        """The header of the recording that was read last."""
        self.damaged = 0

    def read(self) -> tuple[list[tuple[LineSpan, LineT]], bool]:
        """The lines that were added, each after its span, and whether they replace those that were read before.

        Raises:
            FileFormatError: a newer release wrote the file, or its first line is none of a record.
        """
        content, is_restarted = self.read_content()
        return self.parse(content, self.end - len(content)), is_restarted

    def read_content(self) -> tuple[bytes, bool]:
        """As `read`, with the lines in one piece."""
        if not self.path.is_file():
            return b"", self._begin(None, 0)
        try:
            with self.path.open("rb") as file:
                if self._is_index:
                    first = file.readline(_MAX_HEADER)
                    if not first.endswith(b"\n"):
                        return b"", False
                    is_restarted = self._settle(first)
                else:
                    is_restarted = os.fstat(file.fileno()).st_size < self.end and self._begin(None, 0)
                file.seek(self.end)
                content = file.read()
        except OSError as cause:
            raise FileFormatError(f"cannot read {self.path}: {cause.strerror or cause}.") from cause
        content = content[: content.rfind(b"\n") + 1]
        self.end += len(content)
        return content, is_restarted

    def parse(self, content: bytes, at: int) -> list[tuple[LineSpan, LineT]]:
        """The lines of a piece of the file that begins at a byte; damaged ones are counted."""
        lines = []
        for line in content.splitlines(keepends=True):
            try:
                read = self._kind.model_validate_json(line, context=self.header)
                lines.append((LineSpan(at, len(line) - 1), read))
            except ValidationError:
                self.damaged += 1
            at += len(line)
        return lines

    def _settle(self, first: bytes) -> bool:
        """Check the first line; whether it begins another recording than before."""
        way_out = f"Remove the folder {self.path.parent} to look at the rest of the run."
        with validating(f"{self.path} is not the record of a run: its first line does not name the format", way_out):
            header = Header.model_validate_json(first)
        if header.record != RECORD_VERSION:
            way_out = "Upgrade rubricem" if header.record > RECORD_VERSION else "Look at this run with that release"
            raise FileFormatError(
                f"{self.path} was recorded by another release (format {header.record}; this one reads format "
                f"{RECORD_VERSION}). {way_out}."
            )
        if header == self.header:
            return False
        return self._begin(header, len(first))

    def _begin(self, header: Header | None, offset: int) -> bool:
        is_restarted = self.end > 0
        self.header = header
        self.end = offset
        self.damaged = 0
        return is_restarted


def read_bytes(path: Path, at: int, size: int) -> bytes:
    """A piece of a file; shorter where the file ends before."""
    try:
        with path.open("rb") as file:
            file.seek(at)
            return file.read(min(size, max(0, os.fstat(file.fileno()).st_size - at)))
    except OSError as cause:
        raise FileFormatError(f"cannot read {path}: {cause.strerror or cause}.") from cause
