"""An evaluation's answers and verdicts by where they stand in their logs, followed while the run goes on."""

import threading
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from rubricem_agent.evals.run.manifest import ANSWERS_FILE, VERDICTS_FILE
from rubricem_agent.evals.run.records import AnswerRecord, CaseKey, VerdictRecord
from rubricem_agent.viewer.index_follower import read_bytes
from rubricem_agent.viewer.problems import NotThereError
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.trajectory_json import first_problem
from rubricem_env.scaffold.reading import read_trajectory

ANSWER_CHARS, QUESTION_CHARS = 300, 500


class AnswerRow(NamedTuple):
    """An answer as a list shows it."""

    at: int
    size: int
    key: CaseKey
    question: str
    answer: str
    failure: str
    ending: str
    seconds: float
    dollars: float


class LineSpan(NamedTuple):
    """A line of a file."""

    at: int
    size: int


class _LogTail:
    """The whole lines that a log has gained since the last look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def fresh(self) -> tuple[list[tuple[LineSpan, bytes]], bool]:
        """The lines with their places, and whether the log was cut and is read anew."""
        try:
            size = self.path.stat().st_size
        except OSError:
            size = 0
        is_cut = size < self._offset
        if is_cut:
            self._offset = 0
        content = read_bytes(self.path, self._offset, size - self._offset) if size > self._offset else b""
        found = []
        for line in content[: content.rfind(b"\n") + 1].splitlines(keepends=True):
            found.append((LineSpan(self._offset, len(line) - 1), line))
            self._offset += len(line)
        return found, is_cut


class AnswerIndex:
    """The logs of one evaluation. The first final answer of a case stands, or else the last. Safe under threads."""

    def __init__(self, folder: Path) -> None:
        self._answers = _LogTail(folder / ANSWERS_FILE)
        self._verdicts = _LogTail(folder / VERDICTS_FILE)
        self._lock = threading.Lock()
        self._rows: dict[CaseKey, AnswerRow] = {}
        self._spoken: dict[CaseKey, list[LineSpan]] = {}
        self.damaged = 0

    def rows(self) -> list[AnswerRow]:
        """All answers, in the order in which their cases first appeared."""
        with self._lock:
            self._refresh()
            return list(self._rows.values())

    def find(self, key: CaseKey) -> AnswerRow:
        """One answer.

        Raises:
            NotThereError: the case has none.
        """
        with self._lock:
            self._refresh()
            if key not in self._rows:
                raise NotThereError(f"this evaluation has no answer to {key.id[:80]!r}, epoch {key.epoch}.")
            return self._rows[key]

    def answer(self, row: AnswerRow) -> AnswerRecord:
        """An answer whole.

        Raises:
            FileFormatError: its line has changed, or a newer release wrote it.
        """
        try:
            return AnswerRecord.model_validate_json(read_bytes(self._answers.path, row.at, row.size))
        except ValidationError as cause:
            raise FileFormatError(f"{self._answers.path} has no whole answer: {first_problem(cause)}") from cause

    def verdicts(self, key: CaseKey) -> list[VerdictRecord]:
        """What judges said of a case, in the order of the log."""
        with self._lock:
            spans = list(self._spoken.get(key, ()))
        return [VerdictRecord.model_validate_json(read_bytes(self._verdicts.path, *span)) for span in spans]

    def _refresh(self) -> None:
        answers, is_cut = self._answers.fresh()
        if is_cut:
            self._rows = {}
        for span, line in answers:
            self._enter(span, line)
        verdicts, is_cut = self._verdicts.fresh()
        if is_cut:
            self._spoken = {}
        for span, line in verdicts:
            try:
                record = VerdictRecord.model_validate_json(line)
            except ValidationError:
                self.damaged += 1
                continue
            self._spoken.setdefault(CaseKey(record.id, record.epoch), []).append(span)

    def _enter(self, span: LineSpan, line: bytes) -> None:
        try:
            record = AnswerRecord.model_validate_json(line)
        except ValidationError:
            self.damaged += 1
            return
        known = self._rows.get(record.key)
        if known is None or known.failure:
            self._rows[record.key] = _row(record, span)


def _row(record: AnswerRecord, span: LineSpan) -> AnswerRow:
    reading = read_trajectory(record.trajectory) if record.trajectory is not None else None
    answer = record.given if record.given is not None else (reading.answer if reading else None)
    ending = record.trajectory.ending if record.trajectory is not None else None
    return AnswerRow(
        *span,
        record.key,
        record.trajectory.question[:QUESTION_CHARS] if record.trajectory is not None else "",
        (answer or "")[:ANSWER_CHARS],
        record.failure,
        ending.value if ending else "",
        record.seconds,
        record.dollars,
    )
