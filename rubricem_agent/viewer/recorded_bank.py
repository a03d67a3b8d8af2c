"""The bank of a run as its record tells it: an ordinary bank in memory that follows the lessons of a run."""

import base64
import binascii
from pathlib import Path

import numpy as np

from rubricem_agent.learn.run_record import LESSONS, RECORD_FOLDER, LessonLine
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.embed import AbsentEmbedder, Embedder, HashingEmbedder
from rubricem_agent.memory.store import MemoryStore, StoredItem
from rubricem_agent.viewer.index_follower import IndexFollower


class RecordedBank:
    """Opened by the first look at it. A run that goes on is followed; one that is resumed is read anew."""

    def __init__(self, run: Path) -> None:
        self._path = run / RECORD_FOLDER / f"{LESSONS}.jsonl"
        self._follower = IndexFollower(self._path, LessonLine)
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
        fresh = self._follower.read()
        if fresh.is_restarted:
            self._store = self._bank = None
        rows = [row for row in map(_stored, fresh.lines) if row is not None]
        self.step = max([0 if fresh.is_restarted else self.step, *(line.step for line in fresh.lines)])
        if rows and self._store is None:
            embedder = self._embedder(len(rows[0].vector))
            self._store = MemoryStore(embedder=embedder.name, dimension=embedder.dimension)
            self._bank = RubricBank.open(self._store, embedder)
        if rows and self._store is not None:
            self._store.put([row for row in rows if len(row.vector) == self._store.dimension])
        return self._bank

    def _embedder(self, dimension: int) -> Embedder:
        """The run's own where it needs no weights; else one that refuses, so that all but a search works."""
        name = self._follower.header.embedder if self._follower.header else ""
        hashing = HashingEmbedder(dimension)
        return hashing if hashing.name == name else AbsentEmbedder(name, dimension)


def _stored(line: LessonLine) -> StoredItem | None:
    """The item with its vector; None where that is damaged."""
    try:
        vector = np.frombuffer(base64.b64decode(line.vector, validate=True), dtype="<f4")
    except (binascii.Error, ValueError):
        return None
    return StoredItem(line.item, vector.astype(np.float32)) if len(vector) and np.all(np.isfinite(vector)) else None
