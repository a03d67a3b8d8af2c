"""The index of a bank in memory: items by number, by question and by vector."""

import math
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from rubricem_agent.memory.embed import Floats
from rubricem_agent.memory.store import text_digest
from rubricem_records.bank.bank_items import SHOWN, BankItem, Retrieved, ShownStatus, StoredItem

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
    """Rows of unit vectors, each open or closed to every kind of search. An append is amortised O(1).

    Not thread-safe.
    """

    def __init__(self, dimension: int, *, kinds: int) -> None:
        self._rows = _aligned(_FIRST_CAPACITY, dimension)
        self._is_closed = np.ones((kinds, _FIRST_CAPACITY), dtype=bool)
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
            self._is_closed = np.concatenate([self._is_closed, np.ones_like(self._is_closed)], axis=1)
        self._rows[self._count] = vector
        self._count += 1
        return self._count - 1

    def set_open(self, row: int, is_open: bool, *, kind: int = 0) -> None:
        self._is_closed[kind, row] = not is_open

    def scores(self, vector: Floats) -> Floats:
        """The inner product with each row in float32, closed ones and unused ones at the end included."""
        # BLAS multiplies so few rows in one thread: sooner than row by row, and not slowed down by shared cores.
        blocks = self._rows.reshape(-1, _BLOCK, len(vector))[: -(-self._count // _BLOCK)]
        scores: Floats = np.matmul(blocks, vector).reshape(-1)
        return scores

    def nearest(self, vector: Floats, scores: Floats, limit: int, *, kind: int = 0) -> list[tuple[int, float]]:
        """At least the `limit` open rows of greatest inner product, fewer where there are fewer.

        `scores` are the vector's, and may be used again for the same kind. Rows that tie with the last one are
        included, and a few others, so the caller can order ties. Equal rows get equal scores at any index: the
        returned scores are summed again, one row at a time, in float64.
        """
        if limit < 1 or not self._count:
            return []
        is_closed = self._is_closed[kind]
        near = self._maxima(scores, limit, is_closed) if limit < _FEW else None
        if near is None:
            np.putmask(scores, is_closed[: len(scores)], _CLOSED)
            last = np.partition(scores, -limit)[-limit] if limit < len(scores) else _CLOSED
            near = (scores >= max(last - _SLACK, _CLOSED / 2)).nonzero()[0].tolist()
        exact = np.add.reduce(np.multiply(self._rows.take(near, axis=0), vector, dtype=np.float64), axis=1)
        return list(zip(near, exact.tolist(), strict=True))

    @staticmethod
    def _maxima(scores: Floats, limit: int, is_closed: npt.NDArray[np.bool_]) -> list[int] | None:
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
            if score >= least and not is_closed[row]:
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
        self._current: dict[ShownStatus, list[BankItem | None]] = {status: [] for status in SHOWN}
        """By row, so that a search finds an item without a look at others."""
        self.removed: set[str] = set()
        """The digests of removed texts."""
        self._quarantined: dict[int, str] = {}
        """The digests of the texts in quarantine, by the number of the item."""
        self._table = VectorTable(dimension, kinds=len(SHOWN))

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
                for items in self._current.values():
                    items.append(None)
            if item.status == "removed":
                self.removed.add(text_digest(item.reflection))
            if item.status == "quarantined":
                self._quarantined[item.id] = text_digest(item.reflection)
            else:
                self._quarantined.pop(item.id, None)
            touched.add(item.key)
        for key in touched:
            self._settle(key)

    def vector(self, key: str) -> Floats | None:
        """The vector of a question that the bank has met; None for any other."""
        row = self._rows.get(key)
        return None if row is None else self._table.rows[row]

    @property
    def quarantined(self) -> frozenset[str]:
        """The digests of the texts in quarantine."""
        return frozenset(self._quarantined.values())

    def current(self, key: str, status: ShownStatus = "active") -> BankItem | None:
        """The one item of this question that has the status and may be retrieved."""
        row = self._rows.get(key)
        return None if row is None else self._current[status][row]

    def history(self, key: str) -> tuple[BankItem, ...]:
        """All items of a question, oldest first."""
        return tuple(self.items[number] for number in sorted(self._ids.get(key, ())))

    def stored(self) -> Iterator[StoredItem]:
        """Every item with its vector, oldest first."""
        return (StoredItem(item, self._table.rows[self._rows[item.key]]) for _, item in sorted(self.items.items()))

    def nearest(
        self,
        vector: Floats,
        limit: int,
        *,
        status: ShownStatus = "active",
        without: str = "",
        least: float = -math.inf,
        below: float = math.inf,
    ) -> tuple[Retrieved, ...]:
        """The most similar items of a status: greatest cosine first, equals by their keys.

        Those of the question whose key is `without` are left out, and those whose cosine is under `least`, or is
        `below` or more.
        """
        kind = SHOWN.index(status)
        current = self._current[status]
        scores = self._table.scores(vector)
        own = self._rows.get(without)
        fetch = limit
        while True:
            candidates = self._table.nearest(vector, scores, fetch, kind=kind)
            # Ties by key, because numbers depend on the order of writing.
            ranked = sorted((-score, self._keys[row], row) for row, score in candidates)[:fetch]
            nearest = [(current[row], -score) for score, _, row in ranked if row != own and -score < below]
            if len(nearest) >= limit or fetch >= len(self._table):
                return tuple(Retrieved(item, score) for item, score in nearest[:limit] if item and score >= least)
            fetch *= 4

    def _settle(self, key: str) -> None:
        """Find the current items of a question. A process killed between two writes may leave two; the newer counts."""
        row = self._rows[key]
        for kind, status in enumerate(SHOWN):
            current = [number for number in self._ids[key] if self.items[number].status == status]
            self._current[status][row] = self.items[max(current)] if current else None
            self._table.set_open(row, bool(current), kind=kind)
