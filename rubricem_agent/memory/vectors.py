"""Vectors in memory, searched exactly by inner product; appending costs the same however many there are."""

import numpy as np

from rubricem_agent.memory.embed import Floats

_FIRST_CAPACITY = 256
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

        Rows that tie with the last one come too, so the caller can order ties. Equal rows get equal scores,
        wherever they stand: the scores returned are summed anew, one row at a time, in float64.
        """
        open_rows = np.flatnonzero(self._is_open[: self._count])
        if not len(open_rows) or limit < 1:
            return []
        scores = (self._rows[: self._count] @ vector)[open_rows]
        if limit < len(scores):
            edge = np.partition(scores, len(scores) - limit)[len(scores) - limit]
            open_rows = open_rows[scores >= edge - _SLACK]
        exact = (self._rows[open_rows].astype(np.float64) * vector.astype(np.float64)).sum(axis=1)
        return list(zip(open_rows.tolist(), exact.tolist(), strict=True))
