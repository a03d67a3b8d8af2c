import numpy as np
import pytest
from scipy.stats import binomtest, bootstrap, sem, ttest_1samp

from rubricem_env.domain.errors import UsageError
from rubricem_records.evaluations.statistics import (
    DRAWS,
    bootstrap_mean,
    cohens_kappa,
    epoch_variance,
    kappa_interval,
    paired_bootstrap,
    standard_error,
    wilson_interval,
)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_the_same_seed_gives_the_same_interval_and_the_mean_is_inside() -> None:
    values = [0.0, 1.0, 1.0, 0.0, 1.0]

    first, second = bootstrap_mean(values, rng=rng()), bootstrap_mean(values, rng=rng())

    assert first == second
    assert first.low <= 0.6 <= first.high


def test_the_standard_error_is_the_sample_deviation_over_the_root_of_n() -> None:
    # Values 0 and 1: sample variance 1/2, so sqrt(1/2 / 2) = 1/2.
    assert standard_error([0.0, 1.0]) == pytest.approx(0.5)
    assert standard_error([3.0]) == 0.0


def test_rows_of_one_cluster_are_drawn_together_so_that_the_interval_is_wider() -> None:
    values, clusters = [0.0] * 20 + [1.0] * 20, ["a"] * 20 + ["b"] * 20

    clustered = bootstrap_mean(values, clusters=clusters, rng=rng())

    # Two clusters: the resampled mean is 0, 1/2 or 1.
    assert (clustered.low, clustered.high) == (0.0, 1.0)
    assert bootstrap_mean(values, rng=rng()).low > 0.3


def bounds(successes: int, total: int) -> tuple[float, float]:
    interval = wilson_interval(successes, total)
    return interval.low, interval.high


def test_the_wilson_interval_at_the_edges_is_not_empty_and_stays_inside() -> None:
    # 0 of 10: the upper end is z^2 / (n + z^2) = 3.8415/13.8415.
    assert bounds(0, 10) == pytest.approx((0.0, 0.27753), abs=1e-5)
    assert bounds(10, 10) == pytest.approx((0.72247, 1.0), abs=1e-5)


@pytest.mark.parametrize(("successes", "total"), [(1, 0), (-1, 2), (3, 2)])
def test_an_impossible_rate_is_refused(successes: int, total: int) -> None:
    with pytest.raises(UsageError, match="is not a rate"):
        wilson_interval(successes, total)


def test_a_paired_comparison_uses_shared_ids_only_and_order_does_not_matter() -> None:
    first, second = {"a": 1.0, "b": 0.5, "z": 0.0}, {"b": 0.25, "a": 0.75, "y": 1.0}

    difference = paired_bootstrap(first, second, rng=rng())

    assert (difference.difference, difference.n, difference.low, difference.high) == (0.25, 2, 0.25, 0.25)
    assert difference == paired_bootstrap(dict(reversed(first.items())), second, rng=rng())


def test_equal_runs_have_a_p_value_of_one_and_a_sure_gain_the_smallest_that_can_be_shown() -> None:
    ids = [str(number) for number in range(30)]

    equal = paired_bootstrap(dict.fromkeys(ids, 0.5), dict.fromkeys(ids, 0.5), rng=rng())
    better = paired_bootstrap(dict.fromkeys(ids, 1.0), dict.fromkeys(ids, 0.5), rng=rng(), draws=100)

    assert (equal.p_value, better.p_value) == (1.0, 0.01)


def test_kappa_takes_chance_off_the_agreement() -> None:
    # Observed 3/4. Chance: yes 3/4*2/4 + no 1/4*2/4 = 1/2. (3/4 - 1/2) / (1/2) = 1/2.
    assert cohens_kappa("yyyn", "yynn") == pytest.approx(0.5)
    assert cohens_kappa("yy", "yy") == 1.0
    assert cohens_kappa("yn", "ny") == pytest.approx(-1.0)


def test_variance_splits_into_between_examples_and_within_epochs() -> None:
    # Means 1/2 and 1: variance 1/16. Within: 1/4 and 0, mean 1/8. Together 3/16, the variance of 0 1 1 1.
    split = epoch_variance({"a": [0.0, 1.0], "b": [1.0, 1.0]})

    assert (split["between"], split["within"]) == pytest.approx((1 / 16, 1 / 8))


@pytest.mark.parametrize(
    "ask",
    [
        lambda: bootstrap_mean([], rng=rng()),
        lambda: bootstrap_mean([1.0], clusters=["a", "b"], rng=rng()),
        lambda: paired_bootstrap({"a": 1.0}, {"b": 1.0}, rng=rng()),
        lambda: cohens_kappa("y", "yn"),
        lambda: epoch_variance({"a": []}),
    ],
)
def test_nothing_to_compute_from_is_refused_with_a_way_out(ask: object) -> None:
    with pytest.raises(UsageError, match=r"; (score|give|compare) "):
        ask()  # type: ignore[operator]


@pytest.mark.parametrize(("successes", "total"), [(0, 7), (3, 7), (7, 7), (1, 1000), (480, 900), (899, 900)])
def test_the_wilson_interval_is_that_of_scipy(successes: int, total: int) -> None:
    theirs = binomtest(successes, total).proportion_ci(0.95, method="wilson")

    assert bounds(successes, total) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def skewed(n: int) -> np.ndarray:
    return np.random.default_rng(n).exponential(size=n)


@pytest.mark.parametrize("n", [2, 5, 40, 300])
def test_the_bootstrap_interval_is_scipys_percentile_interval_of_the_same_draws(n: int) -> None:
    ours = bootstrap_mean(skewed(n), rng=rng())

    theirs = bootstrap((skewed(n),), np.mean, n_resamples=DRAWS, method="percentile", rng=rng()).confidence_interval

    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)
    assert ours.stderr == pytest.approx(sem(skewed(n)), abs=1e-12)


def test_the_paired_interval_is_scipys_for_the_mean_difference_of_the_same_draws() -> None:
    first, second = skewed(60), skewed(61)[:60]
    names = [f"{number:03d}" for number in range(60)]

    ours = paired_bootstrap(dict(zip(names, first, strict=True)), dict(zip(names, second, strict=True)), rng=rng())

    def difference(one, other, axis):
        return np.mean(one - other, axis=axis)

    theirs = bootstrap(
        (first, second), difference, paired=True, n_resamples=DRAWS, method="percentile", rng=rng()
    ).confidence_interval
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)
    assert (ours.better, ours.worse) == (int((first > second).sum()), int((first < second).sum()))


def test_the_clustered_interval_is_scipys_for_the_ratio_over_whole_clusters() -> None:
    sizes = np.array([1.0, 4.0, 2.0, 3.0, 5.0, 1.0])
    clusters = np.repeat(np.arange(6), sizes.astype(int))
    values = skewed(len(clusters))
    sums = np.bincount(clusters, weights=values)

    ours = bootstrap_mean(values, clusters=list(clusters), rng=rng())

    def ratio(one, other, axis):
        return np.sum(one, axis=axis) / np.sum(other, axis=axis)

    theirs = bootstrap((sums, sizes), ratio, paired=True, n_resamples=DRAWS, method="percentile", rng=rng())
    assert (ours.low, ours.high) == pytest.approx(tuple(theirs.confidence_interval), abs=1e-12)


def test_the_paired_interval_covers_the_true_difference_about_as_often_as_the_t_interval() -> None:
    covered = tested = 0
    generator = np.random.default_rng(5)
    for _ in range(400):
        gaps = generator.normal(0.3, 1.0, size=60)
        ours = paired_bootstrap(
            {str(i): gap for i, gap in enumerate(gaps)}, dict.fromkeys(map(str, range(60)), 0.0), rng=generator
        )
        covered += ours.low <= 0.3 <= ours.high
        low, high = ttest_1samp(gaps, 0.0).confidence_interval(0.95)
        tested += low <= 0.3 <= high

    # Of 400 intervals of 95 %, 380 are to cover; four binomial deviations are 17.
    assert abs(covered - 380) <= 18
    assert abs(covered - tested) <= 12


def test_the_interval_of_kappa_is_that_of_kappa_on_the_drawn_clusters():
    first, second = list("aabbabcaab"), list("abbbaacaba")
    clusters = [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    found = kappa_interval(first, second, clusters, rng=np.random.default_rng(3))

    draws = np.random.default_rng(3).integers(0, 5, size=(1000, 5))
    members = {cluster: [2 * cluster, 2 * cluster + 1] for cluster in range(5)}
    kappas = []
    for draw in draws:
        rows = [row for cluster in draw for row in members[int(cluster)]]
        kappas.append(cohens_kappa([first[row] for row in rows], [second[row] for row in rows]))
    assert (found.low, found.high) == pytest.approx(np.percentile(kappas, [2.5, 97.5]))


def test_the_interval_of_full_agreement_is_one():
    found = kappa_interval(["a", "b"], ["a", "b"], [0, 1], rng=np.random.default_rng(0))
    assert (found.low, found.high) == (1.0, 1.0)
