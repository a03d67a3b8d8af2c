"""The rollouts of a run in columns: some eighty bytes each, filtered and sorted without reading a trajectory."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rubricem_agent.learn.run_record import RolloutHead
from rubricem_env.domain.stage import Stage

Rows = npt.NDArray[np.intp]
_ROW = np.dtype(
    [
        *(("at", np.int64), ("size", np.int32)),
        *(("step", np.int32), ("place", np.int32), ("attempt", np.int32), ("group", np.int32)),
        *(("scores", np.float32, 4), ("true", np.float32, 4)),
        *(("valid", np.bool_), ("complete", np.bool_), ("ending", np.int8)),
        *(("calls", np.int32), ("tokens", np.int32), ("violations", np.int32)),
    ]
)


class Filter(NamedTuple):
    """Which rollouts are wanted, and in which order; None and "" ask for nothing."""

    groups: npt.NDArray[np.bool_] | None = None
    """By number of the group: those that are wanted."""
    step_from: int | None = None
    step_to: int | None = None
    ending: str = ""
    valid: bool | None = None
    stage: Stage | None = None
    """Whose score the bounds and the order speak of; the mean without one."""
    score_from: float | None = None
    score_to: float | None = None
    sort: str = "newest"


class RolloutTable:
    """Rows in the order of the record. Not thread-safe: the record holds a lock."""

    def __init__(self) -> None:
        self._rows = np.zeros(64, dtype=_ROW)
        self._count = 0
        self._endings: list[str] = []

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> npt.NDArray[np.void]:
        return self._rows[: self._count]

    @property
    def endings(self) -> tuple[str, ...]:
        """All that have occurred."""
        return tuple(filter(None, self._endings))

    def ending(self, code: int) -> str:
        return self._endings[code]

    def append(self, heads: Sequence[RolloutHead], groups: Sequence[int]) -> None:
        """Add rollouts, each with the number of its group."""
        needed = self._count + len(heads)
        if needed > len(self._rows):
            grown = np.zeros(max(needed, 2 * len(self._rows)), dtype=_ROW)
            grown[: self._count] = self.rows
            self._rows = grown
        fresh = [self._row(head, group) for head, group in zip(heads, groups, strict=True)]
        self._rows[self._count : needed] = np.array(fresh, dtype=_ROW)
        self._count = needed

    def of_group(self, group: int) -> Rows:
        """The rollouts of a group, by attempt."""
        found = np.flatnonzero(self.rows["group"] == group)
        return found[np.argsort(self.rows["attempt"][found], kind="stable")]

    def select(self, wanted: Filter) -> Rows:
        """The numbers of the rows that pass, in the order asked for; rows without a score come last by score."""
        rows = self.rows
        value = self.means() if wanted.stage is None else rows["scores"][:, wanted.stage.position]
        mask = np.ones(len(rows), dtype=bool)
        if wanted.groups is not None:
            mask &= wanted.groups[rows["group"]]
        if wanted.valid is not None:
            mask &= rows["valid"] == wanted.valid
        if wanted.ending:
            mask &= rows["ending"] == (self._endings.index(wanted.ending) if wanted.ending in self._endings else -1)
        for column, low, high in (
            (rows["step"], wanted.step_from, wanted.step_to),
            (value, wanted.score_from, wanted.score_to),
        ):
            mask &= _within(column, low, high)
        found = np.flatnonzero(mask)
        return found[_order(rows[found], value[found], wanted.sort)]

    def means(self) -> npt.NDArray[np.float32]:
        """The mean of the scores there are; NaN where there is none."""
        return mean_of(self.rows["scores"])

    def _row(self, head: RolloutHead, group: int) -> tuple[object, ...]:
        if head.ending not in self._endings:
            self._endings.append(head.ending)
        return (
            *(head.at, head.size, head.step, head.place, head.attempt, group),
            *(_numbers(head.scores), _numbers(head.true)),
            *(head.valid, head.complete, self._endings.index(head.ending)),
            *(head.calls, head.tokens, head.violations),
        )


def mean_of(scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Row by row, the mean of the numbers that are there; NaN where there is none."""
    there = ~np.isnan(scores)
    counts = there.sum(axis=1)
    sums = np.where(there, scores, 0).sum(axis=1)
    means: npt.NDArray[np.float32] = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan).astype(np.float32)
    return means


def _within(column: npt.NDArray[np.generic], low: float | None, high: float | None) -> npt.NDArray[np.bool_]:
    mask = np.ones(len(column), dtype=bool)
    if low is not None:
        mask &= np.greater_equal(column, low)
    if high is not None:
        mask &= np.less_equal(column, high)
    return mask


def _order(rows: npt.NDArray[np.void], value: npt.NDArray[np.float32], sort: str) -> Rows:
    place = np.lexsort((rows["attempt"], rows["place"], rows["step"]))
    if sort == "oldest":
        return place
    if sort == "newest":
        return np.lexsort((rows["attempt"], rows["place"], -rows["step"]))
    signed = value if sort == "worst" else -value
    return place[np.argsort(np.nan_to_num(signed[place], nan=np.inf), kind="stable")]


def _numbers(scores: Sequence[float | None]) -> list[float]:
    return [np.nan if score is None else score for score in scores]
