"""What the bank asks of the place where its items last, and one such place in memory."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from rubricem_agent.memory.embed import Floats
from rubricem_agent.memory.item import BankItem


class StoredItem(NamedTuple):
    """An item and the vector of its question."""

    item: BankItem
    vector: Floats


class ItemStore(Protocol):
    """The store of record. Several processes may hold the same one; each changes it under `exclusive` alone."""

    @property
    def embedder(self) -> str:
        """The name of the embedder that all vectors come from."""
        ...

    @property
    def dimension(self) -> int: ...

    def exclusive(self) -> AbstractContextManager[object]:
        """Keep all other writers out. Not to be entered twice."""
        ...

    def change_mark(self) -> int:
        """Differs after every change by anybody; cheap enough to ask for before each search."""
        ...

    def generation(self) -> str:
        """Differs after `replace_all`: what was read before holds no longer."""
        ...

    def changed_since(self, revision: int) -> Iterator[StoredItem]:
        """Every item whose revision is greater, in any order; the rest is known already."""
        ...

    def put(self, rows: Sequence[StoredItem]) -> None:
        """Add or overwrite by item number. Once this returns, the rows outlive the process.

        Raises:
            BankStoreError: the store failed; nothing is promised of the rows.
        """
        ...

    def replace_all(self, rows: Iterable[StoredItem]) -> None:
        """Make these the only rows: all at once, or not at all."""
        ...


class MemoryStore:
    """Items for as long as the process lives: for tests, and for training that saves its snapshots."""

    def __init__(self, *, embedder: str, dimension: int) -> None:
        self.embedder = embedder
        self.dimension = dimension
        self._rows: dict[int, StoredItem] = {}
        self._changes = 0
        self._replaced = 0
        self._lock = threading.Lock()

    def exclusive(self) -> AbstractContextManager[object]:
        return self._lock

    def change_mark(self) -> int:
        return self._changes

    def generation(self) -> str:
        return str(self._replaced)

    def changed_since(self, revision: int) -> Iterator[StoredItem]:
        return iter([row for row in self._rows.values() if row.item.revision > revision])

    def put(self, rows: Sequence[StoredItem]) -> None:
        self._rows.update((row.item.id, row) for row in rows)
        self._changes += 1

    def replace_all(self, rows: Iterable[StoredItem]) -> None:
        self._rows = {row.item.id: row for row in rows}
        self._replaced += 1
        self._changes += 1
