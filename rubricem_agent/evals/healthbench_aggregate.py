"""HealthBench over many examples: the official clipped means, and the two other ways they are published.

official   mean per metric over the examples that have it, then clipped to 0..1; bootstrap with numpy's legacy numbers
drtulu     plain mean and standard deviation, never clipped, so that a published value can be negative
inspect    clipped mean of the overall scores; bootstrap with a numpy Generator
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BOOTSTRAP_DRAWS = 1000


class Aggregate(NamedTuple):
    """The headline (None where no example has a score) and every named number beside it."""

    score: float | None
    metrics: dict[str, float]


class InspectScore(NamedTuple):
    """Headline and bootstrap error as inspect_evals computes them."""

    score: float
    bootstrap_std_error: float


def official_aggregate(
    examples: Sequence[Mapping[str, float]], *, rng: np.random.RandomState, draws: int = BOOTSTRAP_DRAWS
) -> Aggregate:
    """Clipped mean, n_samples and bootstrap_std of each metric name.

    The official code draws from numpy's global legacy generator: a RandomState of the same seed gives the same stream,
    provided that names are visited in order of first appearance, which this function keeps.
    """
    metrics: dict[str, float] = {}
    for name, values in _values_by_name(examples).items():
        metrics[name] = clipped_mean(values)
        metrics[f"{name}:n_samples"] = len(values)
        metrics[f"{name}:bootstrap_std"] = legacy_bootstrap_std(values, rng=rng, draws=draws)
    return _with_headline(metrics)


def drtulu_aggregate(examples: Sequence[Mapping[str, float]]) -> Aggregate:
    """Plain mean and population standard deviation per name, not clipped."""
    metrics: dict[str, float] = {}
    for name, values in _values_by_name(examples).items():
        metrics[name] = float(np.mean(values))
        metrics[f"{name}:std"] = float(np.std(values))
    return _with_headline(metrics)


def inspect_aggregate(
    examples: Sequence[Mapping[str, float]], *, rng: np.random.Generator, draws: int = BOOTSTRAP_DRAWS
) -> InspectScore:
    """Clipped mean of the overall scores, 0 where there is none, and its bootstrap error."""
    values = _values_by_name(examples).get("overall_score")
    if values is None:
        return InspectScore(0.0, 0.0)
    picks = rng.integers(0, len(values), size=(draws, len(values)))
    return InspectScore(clipped_mean(values), _clipped_spread(values[picks]))


def clipped_mean(values: NDArray[np.float64]) -> float:
    """The mean, clipped to 0..1 after averaging: a model below zero reads 0."""
    return float(np.clip(np.mean(values), 0, 1))


def legacy_bootstrap_std(values: NDArray[np.float64], *, rng: np.random.RandomState, draws: int) -> float:
    """Standard deviation of the clipped means of `draws` resamples.

    One matrix of legacy integers is the same stream as the official draw-by-draw choice, and much faster.
    """
    picks = rng.randint(0, len(values), size=(draws, len(values)))
    return _clipped_spread(values[picks])


def _clipped_spread(resamples: NDArray[np.float64]) -> float:
    return float(np.std(np.clip(resamples.mean(axis=1), 0, 1)))


def _values_by_name(examples: Sequence[Mapping[str, float]]) -> dict[str, NDArray[np.float64]]:
    values: dict[str, list[float]] = {}
    for metrics in examples:
        for name, value in metrics.items():
            values.setdefault(name, []).append(value)
        # The official record carries the overall score twice: as a metric and, after all of them, as its `score`.
        if "overall_score" in metrics:
            values.setdefault("score", []).append(metrics["overall_score"])
    return {name: np.asarray(column, dtype=np.float64) for name, column in values.items()}


def _with_headline(metrics: dict[str, float]) -> Aggregate:
    return Aggregate(metrics.get("score"), {name: value for name, value in metrics.items() if name != "score"})
