"""Vectors in memory, searched exactly by inner product; appending costs the same however many there are."""

import numpy as np

from rubricem_agent.memory.embed import Floats

_FIRST_CAPACITY = 256
_BLOCK = 64
_CLOSED = -4.0
"""Below every inner product of unit vectors."""
_SLACK = 1e-5
"""More than float32 rounding can move an inner product of unit vectors: so near the edge, nothing equal is lost."""


class VectorTable:
    """Rows of unit vectors, each open or closed to search. Not thread-safe: its owner holds a lock."""

    def __init__(self, dimension: int) -> None:
        self._rows = np.zeros((_FIRST_CAPACITY, dimension), dtype=np.float32)
        self._is_open = np.zeros(_FIRST_CAPACITY, dtype=bool)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> Floats:
        """All rows in order; a view, not to be written to."""
        return self._rows[: self._count]

    def append(self, vector: Floats) -> int:
        """Add a closed row and return its place. The memory doubles when it is full: amortised O(1)."""
        if self._count == len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
            self._is_open = np.concatenate([self._is_open, np.zeros_like(self._is_open)])
        self._rows[self._count] = vector
        self._count += 1
        return self._count - 1

    def set_open(self, row: int, is_open: bool) -> None:
        self._is_open[row] = is_open

    def nearest(self, vector: Floats, limit: int) -> list[tuple[int, float]]:
        """At least the `limit` open rows of greatest inner product, fewer where there are fewer.

        Rows that tie with the last one come too, and a few others, so the caller can order ties. Equal rows get
        equal scores, wherever they stand: the scores returned are summed anew, one row at a time, in float64.
        """
        if limit < 1 or not self._count:
            return []
        # Row by row, in one thread: as fast as a matrix product here, and it does not crawl where cores are shared.
        scores = np.where(self._is_open[: self._count], np.vecdot(self.rows, vector), _CLOSED)
        near = np.flatnonzero(scores >= max(_lower_bound(scores, limit) - _SLACK, _CLOSED / 2))
        exact = (self._rows[near].astype(np.float64) * vector.astype(np.float64)).sum(axis=1)
        return list(zip(near.tolist(), exact.tolist(), strict=True))


def _lower_bound(scores: Floats, limit: int) -> float:
    """A score that at least `limit` of them reach, and few more: the limit-th greatest of the maxima of blocks.

    The maxima of so many blocks are so many different scores, so the bound holds; and there are far fewer to sort.
    """
    whole = len(scores) // _BLOCK * _BLOCK
    maxima = scores[:whole].reshape(-1, _BLOCK).max(axis=1)
    if len(maxima) < limit:
        maxima = scores
    place = len(maxima) - limit
    return float(np.partition(maxima, place)[place]) if place > 0 else _CLOSED
