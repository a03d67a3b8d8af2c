"""How far two sides agree over the same rubric scores."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Agreement(NamedTuple):
    """Statistics over pairs of rubric scores; None where there is nothing to compute them from."""

    pairs: int
    exact: float | None
    within_one: float | None
    kappa: float | None
    """Cohen's kappa, quadratically weighted: 0 is chance. It is None where either side gives one score only."""
    bias: float | None
    """The mean of first minus second score. Above 0 the first side is more generous."""


def measure_agreement(pairs: Sequence[tuple[int, int]]) -> Agreement:
    """The agreement over pairs of (first, second) scores, each 0, 1 or 2."""
    if not pairs:
        return Agreement(0, None, None, None, None)
    scores = np.array(pairs)
    gaps = scores[:, 0] - scores[:, 1]
    # 1 - (observed disagreement) / (that expected by chance), disagreement being the squared distance.
    by_chance = scores.var(axis=0).sum() + gaps.mean() ** 2
    kappa = float(1 - (gaps**2).mean() / by_chance) if np.ptp(scores, axis=0).all() else None
    return Agreement(len(pairs), float((gaps == 0).mean()), float((abs(gaps) <= 1).mean()), kappa, float(gaps.mean()))
