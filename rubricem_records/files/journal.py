"""The append-only journal of an evaluation, in which the first final record of a key counts."""

from codecs import getincrementaldecoder
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_env.domain.inputs import refuse_other_than_file, validating
from rubricem_records.evaluations.logs import AnswerRecord, VerdictRecord
from rubricem_records.files.atomic_files import writing
from rubricem_records.files.line_file import LineFile

NO_ROOM = "Make room, or make the folder writable; the same command then resumes."

RecordT = TypeVar("RecordT", AnswerRecord, VerdictRecord)


class Journal(Generic[RecordT]):
    """The records of one append-only file: of each key the first final record counts, else its last one."""

    def __init__(self, path: Path, kind: type[RecordT]) -> None:
        self._kind: type[RecordT] = kind
        self._file = LineFile(path)
        self._records: dict[Hashable, RecordT] = {}

    @classmethod
    def read(cls, path: Path, kind: type[RecordT]) -> "Journal[RecordT]":
        """The records of a file, which may be missing; a last line truncated by a kill is skipped.

        Raises FileFormatError where a line is not a record.
        """
        journal = cls(path, kind)
        journal._load()
        return journal

    @classmethod
    def open(cls, path: Path, kind: type[RecordT]) -> "Journal[RecordT]":
        """As `read`, and ready to append; a truncated last line is removed.

        Raises UsageError where another run is writing it.
        """
        journal = cls(path, kind)
        with writing(path, NO_ROOM):
            try:
                journal._file.lock()
            except BlockingIOError as cause:
                raise UsageError(
                    f"{path} is being written by another run; wait for it, or use another --out."
                ) from cause
            journal._load()  # first: what is no truncated record must not be removed
            journal._file.repair()
        return journal

    @property
    def records(self) -> tuple[RecordT, ...]:
        """The record of every key, in order of first appearance."""
        return tuple(self._records.values())

    def find(self, key: Hashable) -> RecordT | None:
        """The record of a key."""
        return self._records.get(key)

    def append(self, record: RecordT) -> None:
        """Write one line and add the record. The line outlives the process, not a power cut.

        Raises ConfigError where the disk refuses; the line is then not in the file.
        """
        with writing(self._file.path, NO_ROOM):
            self._file.append([record.model_dump_json(exclude_defaults=True).encode()])
        self._add(record)

    def adopt(self, records: Iterable[RecordT]) -> None:
        """Append the final records of keys that have none yet."""
        for record in records:
            known = self.find(record.key)
            if record.is_final and not (known is not None and known.is_final):
                self.append(record)

    def close(self) -> None:
        """Let other runs write; safe to call twice."""
        self._file.close()

    def _load(self) -> None:
        path = self._file.path
        refuse_other_than_file(path, "log")
        if not _is_truncated_record(self._file.read_rest()):
            raise FileFormatError(
                f"{path} ends in what is no {self._kind.__name__}, whole or truncated. Restore the file, or "
                "move it away; its work will be repeated."
            )
        for number, line in enumerate(self._file.read(), start=1):
            what = f"{path} line {number} is no {self._kind.__name__}"
            with validating(what, "Remove the line; its work will be repeated."):
                self._add(self._kind.model_validate_json(line))

    def _add(self, record: RecordT) -> None:
        known = self._records.get(record.key)
        if known is None or not known.is_final:
            self._records[record.key] = record


def _is_truncated_record(rest: bytes) -> bool:
    """Whether a kill or a power cut, which fills up with zeros, can have left this after the last line."""
    rest = rest.rstrip(b"\0")
    try:
        text = getincrementaldecoder("utf-8")().decode(rest)
    except UnicodeDecodeError:
        return False
    return not rest or (text.startswith("{") and "\0" not in text)
