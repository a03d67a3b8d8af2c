"""Reads the record of a run while the run writes it."""

import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationInfo, field_validator

from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.inputs import validating
from rubricem_env.heap import filling_heap
from rubricem_records.files.packed_lines import PACKED, unpack_line
from rubricem_records.rollouts.rollout_columns import COLUMNS_FILE, ColumnsPiece, NamedRows, make_rows, read_pieces
from rubricem_records.rollouts.run_record import (
    GROUPS,
    RECORD_FOLDER,
    ROLLOUTS,
    Entry,
    GroupEntry,
    GroupHead,
    Header,
    RolloutEntry,
    RolloutHead,
    StageNumbers,
)
from rubricem_viewer.line_follower import LineFollower, read_bytes
from rubricem_viewer.refusals import NotThereError, UnknownStageError
from rubricem_viewer.rollout_table import RolloutTable

_LINES = re.compile(rb"(?:.*\n){1,400}")
"""As many as are read at once."""


class ShownHead(RolloutHead):
    """The head of a rollout with a number for each stage of the record; others count as damaged lines."""

    @field_validator("scores", "true")
    @classmethod
    def _fits_the_stages(cls, numbers: StageNumbers, info: ValidationInfo) -> StageNumbers:
        if isinstance(info.context, Header) and len(numbers) != len(info.context.stages):
            raise ValueError(f"{len(numbers)} numbers for {len(info.context.stages)} stages")
        return numbers


_NUMBER = r"[-.\dnul]{1,25}"

_WRITTEN: dict[Any, str] = {int: r"(\d{1,15})", bool: "(true|false)", str: '("[a-z_]*")'}

_HEAD_FIELDS = ShownHead.model_fields


@cache
def _head_line(num_stages: int) -> re.Pattern[bytes]:
    """A line of the index as the recorder writes nearly all; others are read one by one."""
    numbers = rf"\[({','.join([_NUMBER] * num_stages)})\]"
    fields = (f'"{name}":{_WRITTEN.get(field.annotation, numbers)}' for name, field in _HEAD_FIELDS.items())
    return re.compile(rb"(?m)^{%b}\n" % ",".join(fields).encode())


class RunRecordReader:
    """One run's record. Safe under threads; each call sees what was written until then."""

    def __init__(self, run: Path) -> None:
        self._folder = run / RECORD_FOLDER
        self.lock = threading.RLock()
        """Held by whoever reads several things that must fit together."""
        self._group_index = LineFollower(self._index(GROUPS), GroupHead)
        self._rollout_index = LineFollower(self._index(ROLLOUTS), ShownHead)
        self._forget()

    def _forget(self) -> None:
        header = self._rollout_index.header
        self.stages: tuple[str, ...] = header.stages if header else STAGES
        """The names of the stages that the record has scores of."""
        self.table = RolloutTable(len(self.stages))
        self.groups: list[GroupHead] = []
        self.questions: dict[str, str] = {}
        """The text of each by key; the text is that of the index, which may be truncated."""
        self._group_numbers: dict[str, int] = {}
        self._waiting = self.table.rows
        self._columns_end = 0
        """The bytes of the columns that were read."""

    @property
    def damaged(self) -> int:
        """Lines of the indexes that could not be read."""
        return self._group_index.damaged + self._rollout_index.damaged

    def refresh(self) -> None:
        """Take in what was written since.

        Raises:
            FileFormatError: a newer release wrote the record.
        """
        with self.lock, filling_heap():
            # Rollouts first: the group of each was written before it.
            rollouts, has_new_rollouts = self._rollout_index.read_content()
            groups, has_new_groups = self._group_index.read()
            header = self._rollout_index.header
            if has_new_rollouts or has_new_groups or (header and header.stages != self.stages):
                self._forget()
            for _, group in groups:
                question = self.questions.setdefault(group.query_key, group.question)
                self._group_numbers[group.id] = len(self.groups)
                is_same = question == group.question
                self.groups.append(group if is_same else group.model_copy(update={"question": question}))
            self._take(rollouts, self._rollout_index.end - len(rollouts))

    def position(self, stage: str) -> int:
        """The index of a stage in the order.

        Raises:
            UnknownStageError: the record has no such stage.
        """
        if stage not in self.stages:
            raise UnknownStageError(f"this run has no stage {stage[:40]!r}; its stages are {', '.join(self.stages)}.")
        return self.stages.index(stage)

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
        matching = [row for row in rows.tolist() if str(self.table.rows["attempt"][row]) == attempt]
        if not matching:
            raise NotThereError(f"this run has recorded no trajectory {rollout_id[:40]!r}.")
        return int(matching[0])

    def read_group(self, number: int) -> GroupEntry:
        """A group whole, from its file."""
        row = self.groups[number]
        return self._read(GROUPS, GroupEntry, row.at, row.size)

    def read_rollout(self, row: int) -> RolloutEntry:
        """A rollout whole, from its file.

        Raises:
            FileFormatError: the line cannot be read, or has other stages than the record.
        """
        fields = self.table.rows[row]
        entry = self._read(ROLLOUTS, RolloutEntry, int(fields["at"]), int(fields["size"]))
        named = entry.rollout.trajectory.scaffold.names, entry.judged.judgement.stages
        numbered = [numbers for numbers in (entry.true, entry.returns, entry.advantages) if numbers is not None]
        if named != (self.stages,) * 2 or any(len(numbers) != len(self.stages) for numbers in numbered):
            raise FileFormatError(
                f"an attempt of {self._folder} has other stages than its record, which names "
                f"{', '.join(self.stages)}. Remove the folder to look at the rest of the run."
            )
        return entry

    def questions_with(self, text: str) -> set[str]:
        """The keys of the questions that contain the text, in capitals or not."""
        folded = text.casefold().strip()
        return {key for key, question in self.questions.items() if folded in question.casefold()}

    def groups_of(self, question: str) -> Sequence[int]:
        """The groups of a question, in the order of steps.

        Raises:
            NotThereError: the run has not met it.
        """
        if question not in self.questions:
            raise NotThereError(f"this run has recorded no question {question[:80]!r}.")
        return [number for number, head in enumerate(self.groups) if head.query_key == question]

    def _take(self, content: bytes, at: int) -> None:
        """Take in lines of the index that begin at a byte of it; rollouts whose group is not there yet wait for it."""
        added = [self.table.with_own_endings(named) for named in self._named_rows(content, at)]
        rows = np.concatenate([self._waiting, *added])
        if len(rows):
            starts = np.flatnonzero(np.diff(rows["step"], prepend=-1) | np.diff(rows["place"], prepend=-1))
            names = (f"{step}-{place}" for step, place in rows[["step", "place"]][starts].tolist())
            numbers = [self._group_numbers.get(name, -1) for name in names]
            rows["group"] = np.repeat(numbers, np.diff(starts, append=len(rows)))
            self._waiting = rows[rows["group"] < 0]
            self.table.rows = np.concatenate([self.table.rows, rows[rows["group"] >= 0]])

    def _named_rows(self, content: bytes, at: int) -> Iterator[NamedRows]:
        """By the columns where they stand for these lines; other lines are parsed."""
        done = 0
        for piece in self._read_columns() if content else ():
            start, end = piece.at - at, piece.at - at + piece.size
            begins_a_line = done <= start and (start == 0 or content[start - 1 : start] == b"\n")
            if begins_a_line and piece.stands_for(content[start:end]):
                yield from self._parsed(content[done:start])
                yield piece.named
                done = end
        yield from self._parsed(content[done:])

    def _read_columns(self) -> list[ColumnsPiece]:
        """What was added to the columns; nothing where they cannot be read."""
        path = self._folder / COLUMNS_FILE
        try:
            with path.open("rb") as file:
                file.seek(self._columns_end)
                pieces, size = read_pieces(file.read(), len(self.stages))
        except OSError:
            return []
        self._columns_end += size
        return pieces

    def _parsed(self, content: bytes) -> Iterator[NamedRows]:
        return (make_rows(self._fields_of(lines[0]), len(self.stages)) for lines in _LINES.finditer(content))

    def _fields_of(self, lines: bytes) -> dict[str, Sequence[Any]]:
        """The fields of heads by name; all lines at once, unless one of them is written in another way."""
        written = _head_line(len(self.stages)).findall(lines)
        if len(written) == lines.count(b"\n"):
            with suppress(ValueError):
                columns = [json.loads(b"[%b]" % b",".join(column)) for column in zip(*written, strict=True)]
                return dict(zip(_HEAD_FIELDS, columns, strict=True))
        heads = [head for _, head in self._rollout_index.parse(lines, 0)]
        return {name: [getattr(head, name) for head in heads] for name in _HEAD_FIELDS}

    def _read(self, kind: str, parse: type[Entry], at: int, size: int) -> Entry:
        path = self._folder / f"{kind}{PACKED}"
        way_out = "If the run has just been resumed, look again in a moment."
        with validating(f"{path} has no whole line at byte {at}", way_out):
            return parse.model_validate_json(unpack_line(read_bytes(path, at, size)))

    def _index(self, kind: str) -> Path:
        return self._folder / f"{kind}.index.jsonl"
