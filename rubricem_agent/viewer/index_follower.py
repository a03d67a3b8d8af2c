"""Follows the index of a record while it is written: whole lines once each, and a fresh start after a resume."""

from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from pydantic import ValidationError

from rubricem_agent.learn.run_record import RECORD_VERSION, Header
from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import FileFormatError

_MAX_HEADER = 65_536
LineT = TypeVar("LineT", bound=Frozen)


class Fresh(NamedTuple, Generic[LineT]):
    """What has come since the last look."""

    lines: list[LineT]
    is_restarted: bool
    """These are the first lines of another recording: what was read before holds no longer."""


class IndexFollower(Generic[LineT]):
    """One file. A line that cannot be read is passed over and counted; the last line counts once it ends."""

    def __init__(self, path: Path, kind: type[LineT]) -> None:
        self._path = path
        self._kind: type[LineT] = kind
        self._offset = 0
        self.header: Header | None = None
        """Of the recording that was read last."""
        self.damaged = 0

    def read(self) -> Fresh[LineT]:
        """The lines that were added; all of them after a restart, none where there is no file.

        Raises:
            FileFormatError: a newer release wrote the file, or its first line is none of a record.
        """
        try:
            with self._path.open("rb") as file:
                first = file.readline(_MAX_HEADER)
                if not first.endswith(b"\n"):
                    return Fresh([], False)
                is_restarted = self._settle(first)
                file.seek(self._offset)
                content = file.read()
        except FileNotFoundError:
            return Fresh([], self._forget())
        except OSError as cause:
            raise FileFormatError(f"cannot read {self._path}: {cause.strerror or cause}.") from cause
        end = content.rfind(b"\n") + 1
        self._offset += end
        return Fresh(self._parse(content[:end]), is_restarted)

    def _settle(self, first: bytes) -> bool:
        """Check the first line; whether it begins another recording than before."""
        header = self._header(first)
        if header.record > RECORD_VERSION:
            raise FileFormatError(
                f"{self._path} was recorded by a newer release (format {header.record}; this one reads up to "
                f"{RECORD_VERSION}). Upgrade rubricem to look at this run."
            )
        if header == self.header:
            return False
        is_restarted = self.header is not None
        self.header, self._offset, self.damaged = header, len(first), 0
        return is_restarted

    def _header(self, first: bytes) -> Header:
        try:
            return Header.model_validate_json(first)
        except ValidationError as cause:
            raise FileFormatError(
                f"{self._path} is not the record of a run: its first line does not name the format. Remove the folder "
                f"{self._path.parent} to look at the rest of the run."
            ) from cause

    def _forget(self) -> bool:
        is_restarted = self.header is not None
        self.header, self._offset, self.damaged = None, 0, 0
        return is_restarted

    def _parse(self, content: bytes) -> list[LineT]:
        lines = []
        for line in content.splitlines():
            try:
                lines.append(self._kind.model_validate_json(line))
            except ValidationError:
                self.damaged += 1
        return lines


def read_bytes(path: Path, at: int, size: int) -> bytes:
    """A piece of a file; shorter where the file ends before."""
    try:
        with path.open("rb") as file:
            file.seek(at)
            return file.read(size)
    except OSError as cause:
        raise FileFormatError(f"cannot read {path}: {cause.strerror or cause}.") from cause
