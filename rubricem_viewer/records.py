"""Read the files of a run while it writes them: its record, its bank, and an evaluation's answers and verdicts.

An index follower returns each whole line once, and all lines again after a resume. The rollouts are kept in columns
of about a hundred bytes a row, which are filtered and sorted without a trajectory being read. The bank is an ordinary one
in memory, to which the recorded lessons are added as they appear.
"""

import base64
import binascii
import json
import math
import os
import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field, ValidationError

from rubricem_agent.evals.manifest import ANSWERS_FILE, VERDICTS_FILE
from rubricem_agent.evals.records import AnswerRecord, CaseKey, VerdictRecord
from rubricem_agent.learn import record as recorded
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.embed import HashingEmbedder
from rubricem_agent.memory.store import MemoryStore, StoredItem
from rubricem_env.domain.base import Frozen, Stage
from rubricem_env.domain.errors import BoundaryError, FileFormatError, UsageError
from rubricem_env.domain.inputs import validating
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_viewer.api import ExampleRow, Sort, StageScores, TrajectoryRow


class NotThereError(UsageError):
    """There is no such run, trajectory, question, item or example."""


class UnreadableRunError(BoundaryError):
    """The folder of a run holds what no release has written."""


_MAX_HEADER = 65_536
LineT = TypeVar("LineT", bound=Frozen)

LineSpan = tuple[int, int]
"""Offset and size of a line of a file."""


class LineFollower(Generic[LineT]):
    """One file. A line that cannot be read is passed over and counted; the last line counts once it ends.

    The first line of an index tells the recording; a log without one is read anew where it has become shorter.
    """

    def __init__(self, path: Path, kind: type[LineT], *, is_index: bool = True) -> None:
        self.path = path
        self._kind: type[LineT] = kind
        self._is_index = is_index
        self._offset = 0
        self.header: recorded.Header | None = None
        """Of the recording that was read last."""
        self.damaged = 0

    def read(self) -> tuple[list[tuple[LineSpan, LineT]], bool]:
        """The lines that were added, each after its place, and whether others have replaced those that were read before.

        Raises:
            FileFormatError: a newer release wrote the file, or its first line is none of a record.
        """
        content, is_restarted = self.read_content()
        return self.parse(content, self._offset - len(content)), is_restarted

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
                    is_restarted = os.fstat(file.fileno()).st_size < self._offset and self._begin(None, 0)
                file.seek(self._offset)
                content = file.read()
        except OSError as cause:
            raise FileFormatError(f"cannot read {self.path}: {cause.strerror or cause}.") from cause
        content = content[: content.rfind(b"\n") + 1]
        self._offset += len(content)
        return content, is_restarted

    def parse(self, content: bytes, at: int) -> list[tuple[LineSpan, LineT]]:
        """The lines of a piece of the file that begins at a byte; damaged ones are counted."""
        lines = []
        for line in content.splitlines(keepends=True):
            try:
                lines.append(((at, len(line) - 1), self._kind.model_validate_json(line)))
            except ValidationError:
                self.damaged += 1
            at += len(line)
        return lines

    def _settle(self, first: bytes) -> bool:
        """Check the first line; whether it begins another recording than before."""
        way_out = f"Remove the folder {self.path.parent} to look at the rest of the run."
        with validating(f"{self.path} is not the record of a run: its first line does not name the format", way_out):
            header = recorded.Header.model_validate_json(first)
        if header.record > recorded.RECORD_VERSION:
            raise FileFormatError(
                f"{self.path} was recorded by a newer release (format {header.record}; this one reads up to "
                f"{recorded.RECORD_VERSION}). Upgrade rubricem to look at this run."
            )
        if header == self.header:
            return False
        return self._begin(header, len(first))

    def _begin(self, header: recorded.Header | None, offset: int) -> bool:
        is_restarted = self._offset > 0
        self.header, self._offset, self.damaged = header, offset, 0
        return is_restarted


def read_bytes(path: Path, at: int, size: int) -> bytes:
    """A piece of a file; shorter where the file ends before."""
    try:
        with path.open("rb") as file:
            file.seek(at)
            return file.read(min(size, max(0, os.fstat(file.fileno()).st_size - at)))
    except OSError as cause:
        raise FileFormatError(f"cannot read {path}: {cause.strerror or cause}.") from cause


Rows = npt.NDArray[np.intp]
FloatT = TypeVar("FloatT", np.float32, np.float64)
MAX_SIZE = 200
_LINES = re.compile(rb"(?:.*\n){1,400}")
"""As many as are read at once."""
_WRITTEN = {
    int: r"(\d{1,15})",
    bool: "(true|false)",
    str: '("[a-z_]*")',
    recorded.FourNumbers: r"\[({0},{0},{0},{0})\]".format(r"[-.\dnul]{1,25}"),
}
_HEAD_FIELDS = recorded.RolloutHead.model_fields
_HEAD_LINE = re.compile(
    rb"(?m)^{%b}\n" % ",".join(f'"{name}":{_WRITTEN[one.annotation]}' for name, one in _HEAD_FIELDS.items()).encode()
)
"""A line of the index as the recorder writes nearly all; others are read one by one."""
_ROW = np.dtype(
    [
        *((name, np.int64) for name in ("at", "size", "step", "place", "attempt", "calls", "tokens", "violations")),
        *(("group", np.int32), ("ending", np.int32), ("valid", np.bool_)),
        *(("scores", np.float32, 4), ("true", np.float32, 4)),
    ]
)
StepBound = Annotated[int | None, Field(ge=0, le=2**31 - 1)]
ScoreBound = Annotated[float | None, Field(ge=0, le=1)]


class PageFilter(Frozen):
    """Which rows of a list are wanted, and which page of them: the parameters of a request, so unknown ones are ignored.

    None, 0 and "" ask for nothing.
    """

    model_config = ConfigDict(strict=False, extra="ignore")

    page: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    size: Annotated[int, Field(ge=1, le=MAX_SIZE)] = 50
    q: Annotated[str, Field(max_length=500)] = ""
    """Text that a row contains, in capitals or not."""

    @property
    def rows(self) -> slice:
        """The page within the rows that pass."""
        return slice((self.page - 1) * self.size, self.page * self.size)


class RolloutFilter(PageFilter):
    """Which rollouts are wanted, and in which order; all but `q`, which is looked for in questions, is met exactly."""

    question: Annotated[str, Field(max_length=64)] = ""
    group: Annotated[str, Field(max_length=30)] = ""
    lesson: Annotated[int, Field(ge=0, le=2**53)] = 0
    """The item of the bank that they must have read."""
    step_from: StepBound = None
    step_to: StepBound = None
    ending: Annotated[str, Field(max_length=40)] = ""
    valid: bool | None = None
    stage: Stage | None = None
    """Whose score the bounds and the order speak of; the mean without one."""
    score_from: ScoreBound = None
    score_to: ScoreBound = None
    sort: Sort = "newest"


class RolloutTable:
    """Rows in the order of the record. Not thread-safe: the record holds a lock."""

    def __init__(self) -> None:
        self.rows: npt.NDArray[np.void] = np.zeros(0, dtype=_ROW)
        self.endings: list[str] = []
        """All that have occurred; a row holds the index of its own."""

    def make_rows(self, columns: Mapping[str, Sequence[Any]]) -> npt.NDArray[np.void]:
        """Rows of the fields of `RolloutHead`, still without their groups."""
        self.endings += [ending for ending in dict.fromkeys(columns["ending"]) if ending not in self.endings]
        rows = np.zeros(len(columns["ending"]), dtype=_ROW)
        for name in columns.keys() & set(_ROW.names or ()) - {"ending"}:
            # None becomes NaN.
            rows[name] = np.array(columns[name], dtype=_ROW[name].base).reshape(rows[name].shape)
        rows["ending"] = [self.endings.index(ending) for ending in columns["ending"]]
        return rows

    def of_group(self, group: int) -> Rows:
        """The rollouts of a group, by attempt."""
        found = np.flatnonzero(self.rows["group"] == group)
        return found[np.argsort(self.rows["attempt"][found], kind="stable")]

    def select(self, wanted: RolloutFilter, groups: npt.NDArray[np.bool_] | None = None) -> Rows:
        """The numbers of the rows that pass, in the requested order; rows without a score come last by score.

        `groups` tells which groups are wanted, by number.
        """
        rows = self.rows
        value = mean_of(rows["scores"]) if wanted.stage is None else rows["scores"][:, wanted.stage.position]
        mask = np.ones(len(rows), dtype=bool)
        if groups is not None:
            mask &= groups[rows["group"]]
        if wanted.valid is not None:
            mask &= rows["valid"] == wanted.valid
        if wanted.ending:
            mask &= rows["ending"] == (self.endings.index(wanted.ending) if wanted.ending in self.endings else -1)
        for column, low, high in (
            (rows["step"], wanted.step_from, wanted.step_to),
            (value, wanted.score_from, wanted.score_to),
        ):
            if low is not None:
                mask &= np.greater_equal(column, low)
            if high is not None:
                mask &= np.less_equal(column, high)
        found = np.flatnonzero(mask)
        attempt, place, step = (rows[name][found] for name in ("attempt", "place", "step"))
        if wanted.sort == "newest":
            return found[np.lexsort((attempt, place, -step))]
        found = found[np.lexsort((attempt, place, step))]
        if wanted.sort == "oldest":
            return found
        signed = value[found] if wanted.sort == "worst" else -value[found]
        return found[np.argsort(np.nan_to_num(signed, nan=np.inf), kind="stable")]


def mean_of(scores: npt.NDArray[FloatT], axis: int = 1) -> npt.NDArray[FloatT]:
    """The mean of the numbers that are there, of each row (axis 1) or column (0); NaN where there is none."""
    there = ~np.isnan(scores)
    counts = there.sum(axis=axis)
    sums = np.where(there, scores, 0).sum(axis=axis)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan).astype(scores.dtype)


class RunRecordReader:
    """One run's record. Safe under threads; each call sees what was written until then."""

    def __init__(self, run: Path) -> None:
        self._folder = run / recorded.RECORD_FOLDER
        self.lock = threading.RLock()
        """Held by whoever reads several things that must fit together."""
        self._group_index = LineFollower(self._path(recorded.GROUPS, ".index"), recorded.GroupHead)
        self._rollout_index = LineFollower(self._path(recorded.ROLLOUTS, ".index"), recorded.RolloutHead)
        self._forget()

    def _forget(self) -> None:
        self.table = RolloutTable()
        self.groups: list[recorded.GroupHead] = []
        self.questions: dict[str, str] = {}
        """The text of each by key; the text is that of the index, which may be truncated."""
        self._group_numbers: dict[str, int] = {}
        self._waiting = self.table.rows

    @property
    def damaged(self) -> int:
        """Lines of the indexes that could not be read."""
        return self._group_index.damaged + self._rollout_index.damaged

    def refresh(self) -> None:
        """Take in what was written since.

        Raises:
            FileFormatError: a newer release wrote the record.
        """
        with self.lock:
            # Rollouts first: the group of each was written before it.
            rollouts, has_new_rollouts = self._rollout_index.read_content()
            groups, has_new_groups = self._group_index.read()
            if has_new_rollouts or has_new_groups:
                self._forget()
            for _, group in groups:
                question = self.questions.setdefault(group.query_key, group.question)
                self._group_numbers[group.id] = len(self.groups)
                is_same = question == group.question
                self.groups.append(group if is_same else group.model_copy(update={"question": question}))
            self._take(rollouts)

    def find_group(self, group_id: str) -> int:
        """The number of a group.

        Raises:
            NotThereError: there is none of that id.
        """
        number = self._group_numbers.get(group_id)
        if number is None:
            raise NotThereError(f"this run has recorded no group {group_id[:40]!r}.")
        return number

    def find_rollout(self, rollout_id: str) -> int:
        """The row of a rollout.

        Raises:
            NotThereError: there is none of that id.
        """
        group_id, _, attempt = rollout_id.rpartition("-")
        group = self._group_numbers.get(group_id)
        rows = self.table.of_group(group) if group is not None and attempt.isdecimal() else np.array([], dtype=np.intp)
        found = [row for row in rows.tolist() if str(self.table.rows["attempt"][row]) == attempt]
        if not found:
            raise NotThereError(f"this run has recorded no trajectory {rollout_id[:40]!r}.")
        return int(found[0])

    def read_group(self, number: int) -> recorded.GroupEntry:
        """A group whole, from its file."""
        row = self.groups[number]
        return self._read(recorded.GROUPS, recorded.GroupEntry, row.at, row.size)

    def read_rollout(self, row: int) -> recorded.RolloutEntry:
        """A rollout whole, from its file."""
        fields = self.table.rows[row]
        return self._read(recorded.ROLLOUTS, recorded.RolloutEntry, int(fields["at"]), int(fields["size"]))

    def questions_with(self, text: str) -> set[str]:
        """The keys of the questions that contain the text, in capitals or not."""
        folded = text.casefold().strip()
        return {key for key, one in self.questions.items() if folded in one.casefold()}

    def groups_of(self, question: str) -> Sequence[int]:
        """The groups of a question, in the order of steps.

        Raises:
            NotThereError: the run has not met it.
        """
        if question not in self.questions:
            raise NotThereError(f"this run has recorded no question {question[:80]!r}.")
        return [number for number, head in enumerate(self.groups) if head.query_key == question]

    def _take(self, content: bytes) -> None:
        """Rollouts whose group is not there yet wait for it."""
        added = [self.table.make_rows(self._columns(lines[0])) for lines in _LINES.finditer(content)]
        rows = np.concatenate([self._waiting, *added])
        if len(rows):
            starts = np.flatnonzero(np.diff(rows["step"], prepend=-1) | np.diff(rows["place"], prepend=-1))
            names = (f"{step}-{place}" for step, place in rows[["step", "place"]][starts].tolist())
            numbers = [self._group_numbers.get(name, -1) for name in names]
            rows["group"] = np.repeat(numbers, np.diff(starts, append=len(rows)))
            self._waiting = rows[rows["group"] < 0]
            self.table.rows = np.concatenate([self.table.rows, rows[rows["group"] >= 0]])

    def _columns(self, lines: bytes) -> dict[str, Sequence[Any]]:
        """The fields of heads by name; all lines at once, unless one of them is written in another way."""
        found = _HEAD_LINE.findall(lines)
        if len(found) == lines.count(b"\n"):
            with suppress(ValueError):
                columns = [json.loads(b"[%b]" % b",".join(column)) for column in zip(*found, strict=True)]
                return dict(zip(_HEAD_FIELDS, columns, strict=True))
        heads = [head for _, head in self._rollout_index.parse(lines, 0)]
        return {name: [getattr(head, name) for head in heads] for name in _HEAD_FIELDS}

    def _read(self, kind: str, parse: type[recorded.Entry], at: int, size: int) -> recorded.Entry:
        path = self._path(kind)
        way_out = "If the run has just been resumed, look again in a moment."
        with validating(f"{path} has no whole line at byte {at}", way_out):
            return parse.model_validate_json(read_bytes(path, at, size))

    def _path(self, kind: str, suffix: str = "") -> Path:
        return self._folder / f"{kind}{suffix}.jsonl"


DIGITS = 4


def make_row(record: RunRecordReader, number: int) -> TrajectoryRow:
    """The row of a rollout; the caller holds the record's lock."""
    fields: Any = record.table.rows[number]
    group = record.groups[int(fields["group"])]
    return TrajectoryRow(
        id=f"{group.id}-{int(fields['attempt'])}",
        step=group.step,
        group=group.id,
        attempt=int(fields["attempt"]),
        question=group.question,
        question_key=group.query_key,
        scores=stage_scores(fields["scores"].tolist()),
        mean=number_or_none(float(mean_of(fields["scores"][None])[0])),
        true=stage_scores(fields["true"].tolist()),
        valid=bool(fields["valid"]),
        ending=record.table.endings[int(fields["ending"])],
        calls=int(fields["calls"]),
        tokens=int(fields["tokens"]),
        violations=int(fields["violations"]),
        lessons=tuple(lesson.item for lesson in group.lessons),
    )


def stage_scores(values: Sequence[float | None]) -> StageScores:
    """Four numbers by stage; NaN is no score."""
    plan, research, review, answer = (number_or_none(value) for value in values)
    return StageScores(plan=plan, research=research, review=review, answer=answer)


def number_or_none(value: float | None) -> float | None:
    """Rounded for showing; None for what is no number."""
    return round(value, DIGITS) if value is not None and math.isfinite(value) else None


class RecordedBank:
    """Opened at the first access. New lines of a running run are followed; a resumed run is read again."""

    def __init__(self, run: Path) -> None:
        self._path = run / recorded.RECORD_FOLDER / f"{recorded.LESSONS}.jsonl"
        self._follower = LineFollower(self._path, recorded.LessonLine)
        self._store: MemoryStore | None = None
        self._bank: RubricBank | None = None
        self.step = 0
        """Of the latest change."""

    @property
    def is_there(self) -> bool:
        return self._path.is_file()

    @property
    def damaged(self) -> int:
        return self._follower.damaged

    def open(self) -> RubricBank | None:
        """The bank as of now; None as long as nothing was written to it."""
        lines, is_restarted = self._follower.read()
        if is_restarted:
            self._store = self._bank = None
        rows = [row for _, line in lines if (row := _stored(line)) is not None]
        self.step = max([0 if is_restarted else self.step, *(line.step for _, line in lines)])
        if rows and self._store is None:
            name = self._follower.header.embedder if self._follower.header else ""
            hashing = HashingEmbedder(len(rows[0].vector))
            self._store = MemoryStore(embedder=name, dimension=hashing.dimension)
            # The run's own embedder where it needs no weights; without one all but a search works.
            self._bank = RubricBank(self._store, hashing if hashing.name == name else None)
        if rows and self._store is not None:
            self._store.put([row for row in rows if len(row.vector) == self._store.dimension])
        return self._bank


def _stored(line: recorded.LessonLine) -> StoredItem | None:
    """The item with its vector; None where that is damaged."""
    try:
        vector = np.frombuffer(base64.b64decode(line.vector, validate=True), dtype="<f4")
    except (binascii.Error, ValueError):
        return None
    return StoredItem(line.item, vector.astype(np.float32)) if len(vector) and np.all(np.isfinite(vector)) else None


ANSWER_CHARS, QUESTION_CHARS = 300, 500


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
