"""Reads an evaluation's answers and verdicts while the evaluation writes them."""

import base64
import threading
from pathlib import Path

from rubricem_env.domain.inputs import validating
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_records.evaluations.logs import AnswerRecord, CaseKey, VerdictRecord
from rubricem_records.evaluations.manifest import ANSWERS_FILE, VERDICTS_FILE
from rubricem_viewer.api.evaluations import ExampleRow
from rubricem_viewer.line_follower import LineFollower, LineSpan, read_bytes
from rubricem_viewer.refusals import NotThereError

ANSWER_CHARS = 300
QUESTION_CHARS = 500


class AnswerIndex:
    """The logs of one evaluation. The first final answer of a case stands, or else the last. Safe under threads."""

    def __init__(self, folder: Path) -> None:
        self._answers = LineFollower(folder / ANSWERS_FILE, AnswerRecord, is_index=False)
        self._verdicts = LineFollower(folder / VERDICTS_FILE, VerdictRecord, is_index=False)
        self._lock = threading.Lock()
        self._rows: dict[CaseKey, tuple[ExampleRow, LineSpan]] = {}
        self._spoken: dict[CaseKey, list[LineSpan]] = {}

    @property
    def damaged(self) -> int:
        """Lines of both logs that could not be read."""
        return self._answers.damaged + self._verdicts.damaged

    def rows(self) -> list[ExampleRow]:
        """All answers without scores, in the order in which their cases first appeared."""
        with self._lock:
            self._refresh()
            return [row for row, _ in self._rows.values()]

    def answer(self, key: CaseKey) -> AnswerRecord:
        """An answer whole.

        Raises:
            NotThereError: the case has none.
            FileFormatError: its line has changed, or a newer release wrote it.
        """
        with self._lock:
            self._refresh()
            if key not in self._rows:
                raise NotThereError(f"this evaluation has no answer to {key.id[:80]!r}, epoch {key.epoch}.")
            span = self._rows[key][1]
        with validating(f"{self._answers.path} has no whole answer"):
            return AnswerRecord.model_validate_json(read_bytes(self._answers.path, *span))

    def verdicts(self, key: CaseKey) -> list[VerdictRecord]:
        """What judges said of a case, in the order of the log."""
        with self._lock:
            spans = list(self._spoken.get(key, ()))
        return [VerdictRecord.model_validate_json(read_bytes(self._verdicts.path, *span)) for span in spans]

    def _refresh(self) -> None:
        answers, is_cut = self._answers.read()
        if is_cut:
            self._rows = {}
        for span, answer in answers:
            known = self._rows.get(answer.key)
            if known is None or known[0].failure:
                self._rows[answer.key] = _row(answer), span
        verdicts, is_cut = self._verdicts.read()
        if is_cut:
            self._spoken = {}
        for span, verdict in verdicts:
            self._spoken.setdefault(CaseKey(verdict.id, verdict.epoch), []).append(span)


def _row(record: AnswerRecord) -> ExampleRow:
    parsed = parse_trajectory(record.trajectory) if record.trajectory is not None else None
    answer = record.given if record.given is not None else (parsed.answer if parsed else None)
    ending = record.trajectory.ending if record.trajectory is not None else None
    # An example's name may hold anything; this can stand in a path.
    opaque = base64.urlsafe_b64encode(record.id.encode("utf-8", "replace")).decode("ascii").rstrip("=")
    return ExampleRow(
        id=f"{record.epoch}.{opaque}",
        example=record.id,
        epoch=record.epoch,
        question=record.trajectory.question[:QUESTION_CHARS] if record.trajectory is not None else "",
        answer=(answer or "")[:ANSWER_CHARS],
        failure=record.failure,
        ending=ending.value if ending else "",
        seconds=record.seconds,
        dollars=record.dollars or 0.0,
    )
