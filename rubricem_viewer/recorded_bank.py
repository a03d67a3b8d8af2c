"""The bank of a training run as its record shows it, which cannot be changed."""

import base64
import binascii
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rubricem_env.domain.errors import UsageError
from rubricem_records.bank.bank_items import BankItem, ItemStatus, Retrieved, StoredItem
from rubricem_records.rollouts.run_record import LESSONS, RECORD_FOLDER, LessonLine
from rubricem_viewer.line_follower import LineFollower
from rubricem_viewer.shown_bank import LessonSearch, MakeSearch


class RecordedLessons:
    """The latest state of every item that one recording names. Safe under threads.

    Without `make_search` everything works but the search.
    """

    def __init__(self, embedder: str, dimension: int, make_search: MakeSearch | None) -> None:
        self._embedder = embedder
        self._dimension = dimension
        self._make_search = make_search
        self._lock = threading.Lock()
        self._rows: dict[int, StoredItem] = {}
        self._numbers: dict[str, set[int]] = {}
        """The numbers of the items of each question."""
        self._changes = 0
        self._search: LessonSearch | None = None

    def add(self, rows: Sequence[StoredItem]) -> None:
        """Take in new or changed items; those with a vector of another dimension are left out."""
        fitting = [row for row in rows if len(row.vector) == self._dimension]
        with self._lock:
            self._rows.update((row.item.id, row) for row in fitting)
            for item, _ in fitting:
                self._numbers.setdefault(item.key, set()).add(item.id)
            self._changes += len(fitting)
            if self._search is not None:
                self._search.add(fitting)

    @property
    def state_mark(self) -> tuple[str, int]:
        return self._embedder, self._changes

    def items(self) -> tuple[BankItem, ...]:
        with self._lock:
            return tuple(self._rows[number].item for number in sorted(self._rows))

    def item(self, number: int) -> BankItem:
        with self._lock:
            row = self._rows.get(number)
        if row is None:
            raise UsageError(f"the bank has no item {number}; `rubricem bank list --all` shows those it has.")
        return row.item

    def history(self, question_key: str) -> tuple[BankItem, ...]:
        with self._lock:
            return tuple(self._rows[number].item for number in sorted(self._numbers.get(question_key, ())))

    def search(self, text: str, *, limit: int) -> tuple[Retrieved, ...]:
        if self._make_search is None:
            raise UsageError(f"these lessons are shown without a search by {self._embedder}; use `rubricem view`.")
        with self._lock:
            if self._search is None:
                self._search = self._make_search(self._embedder, self._dimension)
                self._search.add(list(self._rows.values()))
            return self._search.search(text, limit=limit)

    def change(self, number: int, status: ItemStatus, reason: str = "") -> BankItem:
        raise UsageError(f"item {number} is part of a run's record, which cannot be changed.")


class RecordedBank:
    """Opened at the first access. New lines of a running run are followed; a resumed run is read again."""

    def __init__(self, run: Path, make_search: MakeSearch | None = None) -> None:
        self._path = run / RECORD_FOLDER / f"{LESSONS}.jsonl"
        self._make_search = make_search
        self._follower = LineFollower(self._path, LessonLine)
        self._lessons: RecordedLessons | None = None
        self.step = 0
        """The step of the latest change."""

    @property
    def is_there(self) -> bool:
        return self._path.is_file()

    @property
    def damaged(self) -> int:
        """The number of lines that could not be read."""
        return self._follower.damaged

    def open(self) -> RecordedLessons | None:
        """The lessons as of now; None as long as nothing was written."""
        lines, is_restarted = self._follower.read()
        if is_restarted:
            self._lessons = None
        self.step = max([0 if is_restarted else self.step, *(line.step for _, line in lines)])
        rows = [row for _, line in lines if (row := _stored(line)) is not None]
        if rows and self._lessons is None:
            embedder = self._follower.header.embedder if self._follower.header else ""
            self._lessons = RecordedLessons(embedder, len(rows[0].vector), self._make_search)
        if self._lessons is not None:
            self._lessons.add(rows)
        return self._lessons


def _stored(line: LessonLine) -> StoredItem | None:
    """The item with its vector; None where that is damaged."""
    try:
        vector = np.frombuffer(base64.b64decode(line.vector, validate=True), dtype="<f4")
    except (binascii.Error, ValueError):
        return None
    return StoredItem(line.item, vector.astype(np.float32)) if len(vector) and np.all(np.isfinite(vector)) else None
