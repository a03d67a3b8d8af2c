"""How far two sets of marks agree: exactly, within one, by weighted kappa, and which side is the more generous."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple


class Agreement(NamedTuple):
    """Figures over pairs of marks; None where there is nothing to compute them from."""

    pairs: int
    exact: float | None
    within_one: float | None
    kappa: float | None
    """Cohen's, quadratically weighted: 0 is chance. None where either side gives one mark only."""
    bias: float | None
    """Mean of first minus second mark: above 0 the first side is the more generous."""


def measure_agreement(pairs: Sequence[tuple[int, int]]) -> Agreement:
    """The figures for pairs of (first, second) marks, each 0, 1 or 2."""
    count = len(pairs)
    if not count:
        return Agreement(0, None, None, None, None)
    gaps = [first - second for first, second in pairs]
    return Agreement(
        pairs=count,
        exact=sum(gap == 0 for gap in gaps) / count,
        within_one=sum(abs(gap) <= 1 for gap in gaps) / count,
        kappa=_weighted_kappa(pairs),
        bias=sum(gaps) / count,
    )


def _weighted_kappa(pairs: Sequence[tuple[int, int]]) -> float | None:
    """1 - (observed disagreement) / (that expected by chance), disagreement being the squared distance."""
    firsts, seconds = (Counter(side) for side in zip(*pairs, strict=True))
    if len(firsts) < 2 or len(seconds) < 2:
        return None
    count = len(pairs)
    observed = sum((first - second) ** 2 for first, second in pairs) / count
    expected = sum(firsts[a] * seconds[b] * (a - b) ** 2 for a in firsts for b in seconds) / count**2
    return float(1 - observed / expected)
