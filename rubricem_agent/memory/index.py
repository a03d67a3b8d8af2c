"""The bank's items in memory: by number, by question, and by the vector of the question.

All reflections on one question share one vector, so overwriting an item moves no vector. Not thread-safe: the bank
holds a lock.
"""

from collections.abc import Callable, Iterable, Iterator

from rubricem_agent.memory.embed import Floats
from rubricem_agent.memory.item import BankItem, ItemStatus, text_digest
from rubricem_agent.memory.retrieval import Retrieved
from rubricem_agent.memory.store import StoredItem
from rubricem_agent.memory.vectors import VectorTable

_SPARE = 8
"""Fetched beyond what is asked for, since some will be left out."""


class ItemIndex:
    """What has been read from the store so far."""

    def __init__(self, dimension: int) -> None:
        self.items: dict[int, BankItem] = {}
        self.revision = 0
        """The greatest seen."""
        self.next_id = 1
        self._ids: dict[str, set[int]] = {}
        self._rows: dict[str, int] = {}
        self._keys: list[str] = []
        self._active: dict[str, int] = {}
        self.removed: set[str] = set()
        """The digests of removed texts."""
        self._table = VectorTable(dimension)

    def apply(self, stored: Iterable[StoredItem]) -> None:
        """Take in items as they are now, new or changed; the order does not matter."""
        touched = set()
        for item, vector in stored:
            self.items[item.id] = item
            self.revision = max(self.revision, item.revision)
            self.next_id = max(self.next_id, item.id + 1)
            self._ids.setdefault(item.key, set()).add(item.id)
            if item.key not in self._rows:
                self._rows[item.key] = self._table.append(vector)
                self._keys.append(item.key)
            if item.status is ItemStatus.REMOVED:
                self.removed.add(text_digest(item.reflection))
            touched.add(item.key)
        for key in touched:
            self._settle(key)

    def vector(self, key: str) -> Floats | None:
        """The vector of a question that the bank has met; None for any other."""
        row = self._rows.get(key)
        return None if row is None else self._table.rows[row]

    def active(self, key: str) -> BankItem | None:
        """The one item of this question that may be retrieved."""
        found = self._active.get(key)
        return None if found is None else self.items[found]

    def history(self, key: str) -> tuple[BankItem, ...]:
        """All items of a question, oldest first."""
        return tuple(self.items[number] for number in sorted(self._ids.get(key, ())))

    def stored(self) -> Iterator[StoredItem]:
        """Every item with its vector, oldest first."""
        return (StoredItem(item, self._table.rows[self._rows[item.key]]) for _, item in sorted(self.items.items()))

    def nearest(self, vector: Floats, limit: int, *, admits: Callable[[Retrieved], bool]) -> tuple[Retrieved, ...]:
        """The most similar active items that are admitted: greatest cosine first, equals by their keys."""
        fetch = limit + _SPARE
        while True:
            found = self._table.nearest(vector, fetch)
            ranked = sorted(
                (Retrieved(self.items[self._active[self._keys[row]]], score) for row, score in found),
                key=lambda hit: hit.rank,
            )
            admitted = [hit for hit in ranked[:fetch] if admits(hit)]
            if len(admitted) >= limit or fetch >= len(self._table):
                return tuple(admitted[:limit])
            fetch *= 4

    def _settle(self, key: str) -> None:
        """Find the active item of a question. A process killed between two writes may leave two: the newer counts."""
        active = [number for number in self._ids[key] if self.items[number].is_retrievable]
        if active:
            self._active[key] = max(active)
        else:
            self._active.pop(key, None)
        self._table.set_open(self._rows[key], bool(active))
