"""Which rubrics separate the rollouts of a group."""

from collections.abc import Iterable, Iterator, Sequence
from statistics import pvariance

from rubricem_env.domain.base import STAGES
from rubricem_env.domain.judgement import Rubric


def score_variance(scores: Sequence[float]) -> float:
    """How well a rubric separates a group: the population variance of its scores, exactly 0.0 where all agree."""
    return pvariance(scores) if scores else 0.0


MAX_PER_STAGE = 4
"""Rubrics that a judge without a model proposes for one stage."""


def separating_rubrics(judged: Iterable[tuple[Rubric, Sequence[float]]]) -> Iterator[Rubric]:
    """The rubrics whose scores differ over a group, by stage; of each stage the few that separate it best."""
    rated = [(score_variance(scores), rubric) for rubric, scores in judged]
    rated.sort(key=lambda one: (-one[0], -one[1].weight, one[1].title))
    for stage in STAGES:
        yield from [rubric for variance, rubric in rated if variance > 0 and rubric.stage is stage][:MAX_PER_STAGE]
