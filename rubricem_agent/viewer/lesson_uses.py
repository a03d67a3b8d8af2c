"""Which groups an item of the bank stood before, and how the same questions fared without it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rubricem_agent.viewer.run_record_reader import RunRecordReader

Scores = npt.NDArray[np.float64]
"""Four numbers, a stage each; NaN where there is no score."""


class Use(NamedTuple):
    """A group that saw the item."""

    group: int
    similarity: float
    scores: Scores
    """Means over its rollouts."""
    before: Scores | None
    """Of the same question's latest group before that did not see it."""


def find_uses(record: RunRecordReader, item: int) -> list[Use]:
    """In the order of steps; the caller holds the record's lock."""
    uses = []
    earlier: dict[int, int] = {}
    for number, group in enumerate(record.groups):
        found = next((lesson for lesson in group.lessons if lesson.item == item), None)
        if found is None:
            earlier[group.question] = number
            continue
        before = earlier.get(group.question)
        own, other = _means(record, number), _means(record, before) if before is not None else None
        uses.append(Use(number, found.similarity, own, other))
    return uses


def mean_difference(differences: Sequence[Scores]) -> list[float]:
    """Stage by stage over the groups that have both; NaN where none has."""
    return [float(mean) for mean in _column_means(np.array(differences).reshape(-1, 4))]


def _means(record: RunRecordReader, group: int) -> Scores:
    rows = record.table.of_group(group)
    return _column_means(record.table.rows["scores"][rows].astype(np.float64))


def _column_means(table: npt.NDArray[np.float64]) -> Scores:
    there = ~np.isnan(table)
    counts = there.sum(axis=0)
    sums = np.where(there, table, 0.0).sum(axis=0)
    means: Scores = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return means
