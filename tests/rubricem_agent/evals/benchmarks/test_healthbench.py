import numpy as np

from rubricem_agent.evals.base import API_ERROR
from rubricem_agent.evals.benchmarks.healthbench import (
    RubricItem,
    inspect_aggregate,
    inspect_met,
    strict_verdict,
)

MET = '{"criteria_met": true}'


def item(points: float, *tags: str) -> RubricItem:
    return RubricItem(criterion="c", points=points, tags=tags)


def test_strict_mode_counts_a_missing_verdict_as_the_worst_case() -> None:
    assert strict_verdict(["?"], points=3) is False
    assert strict_verdict(["?"], points=-3) is True
    assert strict_verdict(["5", MET], points=3) is True


def test_the_judge_sees_the_points_of_an_item() -> None:
    assert item(-4).for_judge() == "[-4] c"


def test_inspect_without_any_score_reads_zero() -> None:
    assert inspect_aggregate([], rng=np.random.default_rng(0)) == (0.0, 0.0)
    assert inspect_met([API_ERROR]) is False
