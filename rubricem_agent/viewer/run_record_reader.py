"""A run's record, read while it is written: groups and rollouts by index, each line fetched when it is asked for."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from pydantic import ValidationError

from rubricem_agent.learn.run_record import (
    GROUPS,
    RECORD_FOLDER,
    ROLLOUTS,
    GroupEntry,
    GroupHead,
    RolloutEntry,
    RolloutHead,
    ShownLesson,
)
from rubricem_agent.viewer.index_follower import IndexFollower, read_bytes
from rubricem_agent.viewer.problems import NotThereError
from rubricem_agent.viewer.rollout_table import Filter, RolloutTable, Rows
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.trajectory_json import first_problem

EntryT = TypeVar("EntryT", GroupEntry, RolloutEntry)


class GroupRow(NamedTuple):
    """A group as the index knows it."""

    at: int
    size: int
    step: int
    place: int
    question: int
    """The number of its question."""
    encounter: str
    active: int
    retired: int
    lessons: tuple[ShownLesson, ...]

    @property
    def id(self) -> str:
        return f"{self.step}-{self.place}"


class Question(NamedTuple):
    """A question that was met; its text is that of the index, which may be cut."""

    key: str
    text: str
    folded: str
    """For searching."""


class RunRecordReader:
    """One run's record. Safe under threads; each call sees what was written until then."""

    def __init__(self, run: Path) -> None:
        self._folder = run / RECORD_FOLDER
        self._lock = threading.RLock()
        self._group_index = IndexFollower(self._path(GROUPS, ".index"), GroupHead)
        self._rollout_index = IndexFollower(self._path(ROLLOUTS, ".index"), RolloutHead)
        self._forget()

    def _forget(self) -> None:
        self.table = RolloutTable()
        self.groups: list[GroupRow] = []
        self.questions: list[Question] = []
        self._question_numbers: dict[str, int] = {}
        self._group_numbers: dict[tuple[int, int], int] = {}
        self._waiting: list[RolloutHead] = []

    @property
    def lock(self) -> threading.RLock:
        """Held by whoever reads several things that must fit together."""
        return self._lock

    @property
    def damaged(self) -> int:
        """Lines of the indexes that could not be read."""
        return self._group_index.damaged + self._rollout_index.damaged

    def refresh(self) -> None:
        """Take in what was written since.

        Raises:
            FileFormatError: a newer release wrote the record.
        """
        with self._lock:
            # Rollouts first: the group of each was written before it.
            rollouts = self._rollout_index.read()
            groups = self._group_index.read()
            if rollouts.is_restarted or groups.is_restarted:
                self._forget()
            for group in groups.lines:
                self._enter(group)
            self._take([*self._waiting, *rollouts.lines])

    def find_group(self, group_id: str) -> int:
        """The number of a group.

        Raises:
            NotThereError: there is none of that id.
        """
        number = self._group_numbers.get(_pair(group_id))
        if number is None:
            raise NotThereError(f"this run has recorded no group {group_id[:40]!r}.")
        return number

    def find_rollout(self, rollout_id: str) -> int:
        """The row of a rollout.

        Raises:
            NotThereError: there is none of that id.
        """
        group_id, _, attempt = rollout_id.rpartition("-")
        group = self._group_numbers.get(_pair(group_id))
        rows = self.table.of_group(group) if group is not None and attempt.isdecimal() else np.array([], dtype=np.intp)
        found = [row for row in rows.tolist() if str(self.table.rows["attempt"][row]) == attempt]
        if not found:
            raise NotThereError(f"this run has recorded no trajectory {rollout_id[:40]!r}.")
        return int(found[0])

    def find_question(self, key: str) -> int:
        """The number of a question.

        Raises:
            NotThereError: the run has not met it.
        """
        if key not in self._question_numbers:
            raise NotThereError(f"this run has recorded no question {key[:80]!r}.")
        return self._question_numbers[key]

    def select(self, wanted: Filter) -> Rows:
        return self.table.select(wanted)

    def read_group(self, number: int) -> GroupEntry:
        """A group whole, from its file."""
        row = self.groups[number]
        return self._read(GROUPS, GroupEntry, row.at, row.size)

    def read_rollout(self, row: int) -> RolloutEntry:
        """A rollout whole, from its file."""
        fields = self.table.rows[row]
        return self._read(ROLLOUTS, RolloutEntry, int(fields["at"]), int(fields["size"]))

    def groups_of(self, question: int) -> Sequence[int]:
        """The groups of a question, in the order of steps."""
        return [number for number, row in enumerate(self.groups) if row.question == question]

    def _enter(self, head: GroupHead) -> None:
        number = self._question_numbers.get(head.query_key)
        if number is None:
            number = self._question_numbers[head.query_key] = len(self.questions)
            self.questions.append(Question(head.query_key, head.question, head.question.casefold()))
        self._group_numbers[(head.step, head.place)] = len(self.groups)
        self.groups.append(
            GroupRow(
                *(head.at, head.size, head.step, head.place, number),
                *(head.encounter, head.active, head.retired, head.lessons),
            )
        )

    def _take(self, heads: Sequence[RolloutHead]) -> None:
        """Rollouts whose group is not there yet wait for it."""
        placed = [(head, self._group_numbers.get((head.step, head.place))) for head in heads]
        known = [(head, group) for head, group in placed if group is not None]
        self._waiting = [head for head, group in placed if group is None]
        if known:
            self.table.append([head for head, _ in known], [group for _, group in known])

    def _read(self, kind: str, parse: type[EntryT], at: int, size: int) -> EntryT:
        path = self._path(kind)
        try:
            return parse.model_validate_json(read_bytes(path, at, size))
        except ValidationError as cause:
            raise FileFormatError(
                f"{path} has no whole line at byte {at}: {first_problem(cause)} If the run has just been resumed, look "
                "again in a moment."
            ) from cause

    def _path(self, kind: str, suffix: str = "") -> Path:
        return self._folder / f"{kind}{suffix}.jsonl"


def _pair(group_id: str) -> tuple[int, int]:
    step, _, place = group_id.partition("-")
    is_pair = len(group_id) < 30 and step.isdecimal() and place.isdecimal()
    return (int(step), int(place)) if is_pair else (-1, -1)
