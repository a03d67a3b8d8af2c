"""The index of a bank in memory: items by number, by question and by vector."""

import math
from collections.abc import Iterable, Iterator

import numpy as np

from rubricem_agent.memory.embed import Floats
from rubricem_agent.memory.store import text_digest
from rubricem_records.bank.bank_items import BankItem, Retrieved, StoredItem

_FIRST_CAPACITY = 256
_BLOCK = 64

_CLOSED = -4.0
"""Below every inner product of unit vectors."""

_SLACK = 1e-5
"""More than the float32 rounding error of an inner product of unit vectors, so that no tie is lost."""

_FEW = 12
"""So many maxima are found one after another in less time than a partition of all scores takes."""


def _aligned(capacity: int, dimension: int) -> Floats:
    """Closed rows that begin on a cache line: BLAS reads them sooner than those across two."""
    memory = np.zeros(capacity * dimension + 16, dtype=np.float32)
    start = -memory.ctypes.data % 64 // 4
    return memory[start : start + capacity * dimension].reshape(capacity, dimension)


class VectorTable:
    """Rows of unit vectors, each open or closed to search. An append is amortised O(1). Not thread-safe."""

    def __init__(self, dimension: int) -> None:
        self._rows = _aligned(_FIRST_CAPACITY, dimension)
        self._is_closed = np.ones(_FIRST_CAPACITY, dtype=bool)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> Floats:
        """All rows in order; a view, not to be written to."""
        return self._rows[: self._count]

    def append(self, vector: Floats) -> int:
        """Add a closed row and return its index. The memory doubles when it is full."""
        if self._count == len(self._rows):
            rows = _aligned(2 * self._count, len(vector))
            rows[: self._count] = self._rows
            self._rows = rows
            self._is_closed = np.concatenate([self._is_closed, np.ones_like(self._is_closed)])
        self._rows[self._count] = vector
        self._count += 1
        return self._count - 1

    def set_open(self, row: int, is_open: bool) -> None:
        self._is_closed[row] = not is_open

    def scores(self, vector: Floats) -> Floats:
        """The inner product with each row in float32, closed ones and unused ones at the end included."""
        # BLAS multiplies so few rows in one thread: sooner than row by row, and not slowed down by shared cores.
        blocks = self._rows.reshape(-1, _BLOCK, len(vector))[: -(-self._count // _BLOCK)]
        scores: Floats = np.matmul(blocks, vector).reshape(-1)
        return scores

    def nearest(self, vector: Floats, scores: Floats, limit: int) -> list[tuple[int, float]]:
        """At least the `limit` open rows of greatest inner product, fewer where there are fewer.

        `scores` are the vector's, and may be used again. Rows that tie with the last one are included, and a few
        others, so the caller can order ties. Equal rows get equal scores at any index: the returned scores are summed
        again, one row at a time, in float64.
        """
        if limit < 1 or not self._count:
            return []
        near = self._maxima(scores, limit) if limit < _FEW else None
        if near is None:
            np.putmask(scores, self._is_closed[: len(scores)], _CLOSED)
            last = np.partition(scores, -limit)[-limit] if limit < len(scores) else _CLOSED
            near = (scores >= max(last - _SLACK, _CLOSED / 2)).nonzero()[0].tolist()
        exact = np.add.reduce(np.multiply(self._rows.take(near, axis=0), vector, dtype=np.float64), axis=1)
        return list(zip(near, exact.tolist(), strict=True))

    def _maxima(self, scores: Floats, limit: int) -> list[int] | None:
        """The open rows that `nearest` wants; None where finding them takes more than a few maxima."""
        taken: list[int] = []
        passed: dict[int, float] = {}
        least = _CLOSED / 2
        is_complete = False
        while not is_complete and len(passed) < _FEW:
            row = int(scores.argmax())
            passed[row] = score = scores.item(row)
            scores[row] = -math.inf
            is_complete = score < least
            # A row with NaN in it is above no limit and below none.
            if score >= least and not self._is_closed[row]:
                taken.append(row)
                if len(taken) == limit:
                    least = score - _SLACK
        for row, score in passed.items():
            scores[row] = score
        return taken if is_complete else None


class ItemIndex:
    """The items read from the store so far: by number, by question, by vector. Not thread-safe: the bank locks."""

    def __init__(self, dimension: int) -> None:
        self.items: dict[int, BankItem] = {}
        self.revision = 0
        """The greatest revision seen."""
        self.next_id = 1
        self._ids: dict[str, set[int]] = {}
        self._rows: dict[str, int] = {}
        self._keys: list[str] = []
        self._active: list[BankItem | None] = []
        """By row, so that a search finds an item without a look at others."""
        self.removed: set[str] = set()
        """The digests of removed texts."""
        self._table = VectorTable(dimension)

    def apply(self, stored: Iterable[StoredItem]) -> None:
        """Take in new or changed items, in any order."""
        touched = set()
        for item, vector in stored:
            self.items[item.id] = item
            self.revision = max(self.revision, item.revision)
            self.next_id = max(self.next_id, item.id + 1)
            self._ids.setdefault(item.key, set()).add(item.id)
            if item.key not in self._rows:
                self._rows[item.key] = self._table.append(vector)
                self._keys.append(item.key)
                self._active.append(None)
            if item.status == "removed":
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
        row = self._rows.get(key)
        return None if row is None else self._active[row]

    def history(self, key: str) -> tuple[BankItem, ...]:
        """All items of a question, oldest first."""
        return tuple(self.items[number] for number in sorted(self._ids.get(key, ())))

    def stored(self) -> Iterator[StoredItem]:
        """Every item with its vector, oldest first."""
        return (StoredItem(item, self._table.rows[self._rows[item.key]]) for _, item in sorted(self.items.items()))

    def nearest(
        self, vector: Floats, limit: int, *, without: str = "", below: float = math.inf
    ) -> tuple[Retrieved, ...]:
        """The most similar active items: greatest cosine first, equals by their keys.

        Those of the question whose key is `without` are left out, and those at least as similar as `below`.
        """
        scores = self._table.scores(vector)
        own = self._rows.get(without)
        fetch = limit
        while True:
            candidates = self._table.nearest(vector, scores, fetch)
            # Ties by key, because numbers depend on the order of writing.
            ranked = sorted((-score, self._keys[row], row) for row, score in candidates)[:fetch]
            nearest = [(self._active[row], -score) for score, _, row in ranked if row != own and -score < below]
            if len(nearest) >= limit or fetch >= len(self._table):
                return tuple(Retrieved(item, score) for item, score in nearest[:limit] if item)
            fetch *= 4

    def _settle(self, key: str) -> None:
        """Find the active item of a question. A process killed between two writes may leave two; the newer counts."""
        row = self._rows[key]
        active = [number for number in self._ids[key] if self.items[number].is_retrievable]
        self._active[row] = self.items[max(active)] if active else None
        self._table.set_open(row, bool(active))
