"""The stores that hold a bank's items, and the errors of a bank.

`ItemStore` is what the bank needs of a store of record; `MemoryStore` lasts as long as the process.
"""

import hashlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from rubricem_env.domain.errors import BoundaryError
from rubricem_env.domain.reflection import Reflection
from rubricem_env.scaffold.folding import fold_letters
from rubricem_records.bank.bank_items import StoredItem


def text_digest(reflection: Reflection) -> str:
    """Equal for reflections with the same letters and digits: case, accents, spacing and punctuation do not count."""
    letters = f"{fold_letters(reflection.rubrics)}\0{fold_letters(reflection.takeaways)}"
    return hashlib.sha256(letters.encode("utf-8", "replace")).hexdigest()


class BankStoreError(BoundaryError):
    """The database under the bank failed; whether anything was written is unknown."""


class ItemStore(Protocol):
    """The store of record. Several processes may hold the same one; each changes it under `exclusive` alone."""

    @property
    def embedder(self) -> str:
        """The name of the embedder that all vectors come from."""
        ...

    @property
    def dimension(self) -> int: ...

    def exclusive(self) -> AbstractContextManager[object]:
        """Exclude all other writers. Not reentrant."""
        ...

    def change_mark(self) -> int:
        """Differs after every change by any process; cheap enough to call before each search."""
        ...

    def generation(self) -> str:
        """Differs after `replace_all`: everything read before is stale."""
        ...

    def changed_since(self, revision: int) -> Iterator[StoredItem]:
        """Every item with a greater revision, in any order."""
        ...

    def put(self, rows: Sequence[StoredItem]) -> None:
        """Add or overwrite by item number. Once this returns, the rows outlive the process.

        Raises:
            BankStoreError: the store failed; the state of the rows is unknown.
        """
        ...

    def replace_all(self, rows: Iterable[StoredItem]) -> None:
        """Make these the only rows: all at once, or not at all."""
        ...


class MemoryStore:
    """Items in memory: for tests, and for training that saves snapshots."""

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
