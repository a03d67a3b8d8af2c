"""The uncertainty of a benchmark number: intervals, paired comparison, agreement of judges, variance over epochs.

Pure functions over arrays. Everything random takes a numpy Generator; the same generator state gives the same
interval. The intervals that official scorers print are in the files of their benchmarks.
"""

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import UsageError

DRAWS = 1000

LEVEL = 0.95

Z_95 = 1.959963984540054

Values = NDArray[np.float64]


class MeanInterval(Frozen):
    """The uncertainty of a mean of `n` values; the standard error is 0 for a single value."""

    low: float
    high: float
    stderr: float
    n: int
    method: Text = ""
    """Such as "bootstrap over 100 prompts, 1000 draws, 95 %"."""


class RunComparison(Frozen):
    """The mean of first minus second over the `n` ids that both have."""

    first: Text
    second: Text
    difference: float
    low: float
    high: float
    p_value: float
    """Two-sided, by the share of resamples across zero."""
    n: int
    better: int = 0
    """The examples on which the first scores higher."""
    worse: int = 0
    note: Text = ""
    """What else differs between the two than their names say."""


def bootstrap_mean(
    values: Sequence[float], *, rng: np.random.Generator, clusters: Sequence[Hashable] | None = None
) -> MeanInterval:
    """Percentile bootstrap over examples, or over clusters such as rows that share a prompt.

    A cluster is drawn with all its rows. They are not independent, so that the standard error is then the spread of the
    resampled means.
    """
    column = _column(values)
    if clusters is not None and len(clusters) != len(column):
        raise UsageError(f"{len(clusters)} clusters for {len(column)} values; give one cluster per value.")
    index = {cluster: number for number, cluster in enumerate(dict.fromkeys(clusters or range(len(column))))}
    member_of = np.asarray([index[cluster] for cluster in clusters or range(len(column))])
    sums = np.bincount(member_of, weights=column)
    sizes = np.bincount(member_of).astype(np.float64)
    picks = rng.integers(0, len(index), size=(DRAWS, len(index)))
    means = sums[picks].sum(axis=1) / sizes[picks].sum(axis=1)
    low, high = _percentiles(means)
    stderr = standard_error(values) if len(index) == len(column) else float(means.std())
    return MeanInterval(low=low, high=high, stderr=stderr, n=len(column))


def standard_error(values: Sequence[float]) -> float:
    """Sample standard deviation over the root of n; 0 for one value."""
    column = _column(values)
    return float(column.std(ddof=1) / np.sqrt(len(column))) if len(column) > 1 else 0.0


def wilson_interval(successes: int, total: int) -> MeanInterval:
    """The Wilson score interval of a rate. It is inside 0..1 and not empty at 0 or at 1."""
    if total < 1 or not 0 <= successes <= total:
        raise UsageError(
            f"{successes} of {total} is not a rate; give 0 <= successes <= total and a total of at least 1."
        )
    share = successes / total
    spread = Z_95 * Z_95 / total
    center = (share + spread / 2) / (1 + spread)
    half = Z_95 / (1 + spread) * float(np.sqrt(share * (1 - share) / total + spread / (4 * total)))
    # At the edges centre and half-width cancel exactly but for rounding.
    low = 0.0 if successes == 0 else max(0.0, center - half)
    high = 1.0 if successes == total else min(1.0, center + half)
    stderr = float(np.sqrt(share * (1 - share) / total))
    return MeanInterval(low=low, high=high, stderr=stderr, n=total, method="Wilson, 95 %")


def paired_bootstrap(
    first: Mapping[str, float],
    second: Mapping[str, float],
    *,
    rng: np.random.Generator,
    names: tuple[str, str] = ("first", "second"),
    draws: int = DRAWS,
) -> RunComparison:
    """Compare two runs on the ids that both have, in sorted order, so that completion order does not matter."""
    shared = sorted(first.keys() & second.keys())
    if not shared:
        raise UsageError("the two runs share no example id; compare runs of the same benchmark and subset.")
    gaps = np.asarray([first[key] - second[key] for key in shared], dtype=np.float64)
    means = gaps[rng.integers(0, len(gaps), size=(draws, len(gaps)))].mean(axis=1)
    one_sided = min(float(np.mean(means <= 0)), float(np.mean(means >= 0)))
    # A p-value of 0 cannot be shown with finitely many draws.
    p_value = min(1.0, max(2 * one_sided, 1 / draws))
    low, high = _percentiles(means)
    return RunComparison(
        first=names[0],
        second=names[1],
        difference=float(gaps.mean()),
        low=low,
        high=high,
        p_value=p_value,
        n=len(shared),
        better=int((gaps > 0).sum()),
        worse=int((gaps < 0).sum()),
    )


def cohens_kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> float:
    """Agreement of two judges beyond chance: 1 is perfect, 0 is chance.

    Two judges that both gave one and the same label throughout agree fully: 1.
    """
    if len(first) != len(second) or not first:
        raise UsageError(f"{len(first)} and {len(second)} verdicts; give two judges' verdicts on the same items.")
    observed = sum(ours == theirs for ours, theirs in zip(first, second, strict=True)) / len(first)
    labels = dict.fromkeys((*first, *second))
    expected = sum(list(first).count(label) * list(second).count(label) for label in labels) / len(first) ** 2
    return 1.0 if expected == 1 else (observed - expected) / (1 - expected)


def kappa_interval(
    first: Sequence[str], second: Sequence[str], clusters: Sequence[Hashable], *, rng: np.random.Generator
) -> MeanInterval:
    """Percentile bootstrap of Cohen's kappa over clusters, such as the verdicts on one answer."""
    index = {cluster: row for row, cluster in enumerate(dict.fromkeys(clusters))}
    of_label = {label: column for column, label in enumerate(dict.fromkeys((*first, *second)))}
    counts = np.zeros((len(index), len(of_label), len(of_label)))
    for cluster, ours, theirs in zip(clusters, first, second, strict=True):
        counts[index[cluster], of_label[ours], of_label[theirs]] += 1
    drawn = counts[rng.integers(0, len(index), size=(DRAWS, len(index)))].sum(axis=1)
    shares = drawn / drawn.sum(axis=(1, 2), keepdims=True)
    observed = np.trace(shares, axis1=1, axis2=2)
    expected = (shares.sum(axis=1) * shares.sum(axis=2)).sum(axis=1)
    # As `cohens_kappa`: two judges with one label throughout agree fully.
    kappas = np.where(expected < 1, (observed - expected) / np.maximum(1 - expected, 1e-12), 1.0)
    low, high = _percentiles(kappas)
    return MeanInterval(low=low, high=high, stderr=float(kappas.std()), n=len(first))


def epoch_variance(values_by_example: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The variance `between` the examples' means, and the mean variance `within` one example over its epochs.

    Both are population variances. Their sum is the variance of all values, where every example ran in equally many
    epochs.
    """
    if not values_by_example or not all(values_by_example.values()):
        raise UsageError("an example has no value; give at least one epoch of every example.")
    rows = [_column(values_by_example[key]) for key in sorted(values_by_example)]
    means = np.asarray([row.mean() for row in rows])
    return {"between": float(means.var()), "within": float(np.mean([row.var() for row in rows]))}


def _column(values: Sequence[float]) -> Values:
    column = np.asarray(values, dtype=np.float64)
    if column.size == 0:
        raise UsageError("there are no values; score at least one example.")
    return column


def _percentiles(means: Values) -> tuple[float, float]:
    tail = (1 - LEVEL) / 2 * 100
    low, high = np.percentile(means, [tail, 100 - tail])
    return float(low), float(high)
