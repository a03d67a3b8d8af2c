"""Finds which rubrics separate the rollouts of a group."""

from collections.abc import Iterable, Iterator, Sequence
from statistics import pvariance

from rubricem_env.domain.base import STAGES
from rubricem_env.domain.judgement import Rubric


def score_variance(scores: Sequence[float]) -> float:
    """How well a rubric separates a group: the population variance of its scores, exactly 0.0 where all agree."""
    return pvariance(scores) if scores else 0.0


SEPARATING_PER_STAGE = 4
"""How many rubrics of a stage a judge without a model proposes."""


def separating_rubrics(
    judged: Iterable[tuple[Rubric, Sequence[float]]], stages: Sequence[str] = STAGES
) -> Iterator[Rubric]:
    """The rubrics whose scores differ over a group, by stage; of each stage the few that separate it best."""
    rated = [(score_variance(scores), rubric) for rubric, scores in judged]
    rated.sort(key=lambda pair: (-pair[0], -pair[1].weight, pair[1].title))
    for stage in stages:
        separating = [rubric for variance, rubric in rated if variance > 0 and rubric.stage == stage]
        yield from separating[:SEPARATING_PER_STAGE]
