"""The rollouts of a run in columns, to filter and sort them without reading a trajectory."""

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from rubricem_records.rollouts.rollout_columns import HeadRows, NamedRows, row_type
from rubricem_viewer.filters import RolloutFilter

Rows = npt.NDArray[np.intp]

FloatT = TypeVar("FloatT", np.float32, np.float64)


class RolloutTable:
    """Rows in the order of the record. Not thread-safe: the record holds a lock."""

    def __init__(self, num_stages: int) -> None:
        self.rows: HeadRows = np.zeros(0, dtype=row_type(num_stages))
        self.endings: list[str] = []
        """All that have occurred; a row holds the index of its own."""

    def with_own_endings(self, named: NamedRows) -> HeadRows:
        """The rows with indexes into the endings of this table; new ones are added."""
        self.endings += [ending for ending in named.endings if ending not in self.endings]
        rows = named.rows.copy()
        rows["ending"] = np.array([self.endings.index(ending) for ending in named.endings])[rows["ending"]]
        return rows

    def of_group(self, group: int) -> Rows:
        """The rollouts of a group, by attempt."""
        members = np.flatnonzero(self.rows["group"] == group)
        return members[np.argsort(self.rows["attempt"][members], kind="stable")]

    def select(self, wanted: RolloutFilter, stage: int | None, among: npt.NDArray[np.bool_] | None = None) -> Rows:
        """The numbers of the rows that pass, in the requested order; rows without a score come last by score.

        `stage` is the position of the one whose score counts, or the mean does; `among` tells which rows may pass.
        """
        rows = self.rows
        value = mean_of(rows["scores"]) if stage is None else rows["scores"][:, stage]
        mask = np.ones(len(rows), dtype=bool) if among is None else among.copy()
        if wanted.valid is not None:
            mask &= rows["valid"] == wanted.valid
        if wanted.ending:
            mask &= rows["ending"] == (self.endings.index(wanted.ending) if wanted.ending in self.endings else -1)
        for column, low, high in (
            (rows["step"], wanted.step_from, wanted.step_to),
            (value, wanted.score_from, wanted.score_to),
        ):
            if low is not None:
                mask &= np.greater_equal(column, low)
            if high is not None:
                mask &= np.less_equal(column, high)
        passing = np.flatnonzero(mask)
        attempt, place, step = (rows[name][passing] for name in ("attempt", "place", "step"))
        if wanted.sort == "newest":
            return passing[np.lexsort((attempt, place, -step))]
        passing = passing[np.lexsort((attempt, place, step))]
        if wanted.sort == "oldest":
            return passing
        signed = value[passing] if wanted.sort == "worst" else -value[passing]
        return passing[np.argsort(np.nan_to_num(signed, nan=np.inf), kind="stable")]


def mean_of(scores: npt.NDArray[FloatT], axis: int = 1) -> npt.NDArray[FloatT]:
    """The mean of the numbers that are there, of each row (axis 1) or column (0); NaN where there is none."""
    there = ~np.isnan(scores)
    counts = there.sum(axis=axis)
    sums = np.where(there, scores, 0).sum(axis=axis)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan).astype(scores.dtype)
