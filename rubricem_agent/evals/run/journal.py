"""An append-only log of records: whole lines or nothing, also after kill -9, and one writer at a time."""

import fcntl
import os
from collections.abc import Hashable
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import ValidationError

from rubricem_agent.evals.run.records import AnswerRecord, VerdictRecord
from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_env.domain.trajectory_json import first_problem

RecordT = TypeVar("RecordT", AnswerRecord, VerdictRecord)


class Journal(Generic[RecordT]):
    """The lines of one file. The first final record of a key stands; without one, the last record of the key."""

    def __init__(self, path: Path, kind: type[RecordT]) -> None:
        self._path = path
        self._kind: type[RecordT] = kind
        self._file = -1
        self._records: dict[Hashable, RecordT] = {}

    @classmethod
    def read(cls, path: Path, kind: type[RecordT]) -> "Journal[RecordT]":
        """The records of a file, which may be missing; a last line that was cut off by a kill is passed over.

        Raises:
            FileFormatError: a line is no record.
        """
        journal = cls(path, kind)
        journal._load()
        return journal

    @classmethod
    def open(cls, path: Path, kind: type[RecordT]) -> "Journal[RecordT]":
        """As `read`, and ready to append; the cut-off line is removed.

        Raises:
            UsageError: another run is writing it.
        """
        journal = cls(path, kind)
        journal._claim()
        journal._load()
        return journal

    @property
    def records(self) -> tuple[RecordT, ...]:
        """The standing record of every key, in order of first appearance."""
        return tuple(self._records.values())

    def find(self, key: Hashable) -> RecordT | None:
        """The standing record of a key."""
        return self._records.get(key)

    def append(self, record: RecordT) -> None:
        """Write a line in one piece, then know it. What was appended survives the process, not a power cut."""
        line = record.model_dump_json(exclude_defaults=True).encode() + b"\n"
        written = os.write(self._file, line)
        while written < len(line):
            written += os.write(self._file, line[written:])
        self._keep(record)

    def close(self) -> None:
        """Let other runs write; safe to call twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _load(self) -> None:
        if not self._path.exists():
            return
        whole, _, _ = self._path.read_bytes().rpartition(b"\n")
        for number, line in enumerate(whole.split(b"\n") if whole else (), start=1):
            try:
                self._keep(self._kind.model_validate_json(line))
            except ValidationError as cause:
                raise FileFormatError(
                    f"{self._path} line {number} is no {self._kind.__name__}: {first_problem(cause)} "
                    "Remove the line; what it held will be done again."
                ) from cause

    def _claim(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as cause:
            self.close()
            raise UsageError(
                f"{self._path} is being written by another run; wait for it, or use another --out."
            ) from cause
        content = self._path.read_bytes()
        os.ftruncate(self._file, content.rfind(b"\n") + 1)

    def _keep(self, record: RecordT) -> None:
        known = self._records.get(record.key)
        if known is None or not known.is_final:
            self._records[record.key] = record
