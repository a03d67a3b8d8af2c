"""The ablation as numbers: what each recipe came to over seeds, against answer-only GRPO, and how soon."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from rubricem_agent.evals.statistics import bootstrap_mean, paired_bootstrap
from rubricem_agent.learn.metrics_log import ExamLine, RunLog
from rubricem_agent.learn.recipes import BASELINE, RECIPES, Recipe
from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import UsageError

ABLATION_FILE = "ablation.json"
Logs = Mapping[str, Mapping[int, RunLog]]
"""By recipe, then by seed."""


class Spread(Frozen):
    """A mean over seeds with its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


class CurvePoint(Frozen):
    step: int
    answer: Spread


class RecipeResult(Frozen):
    """A recipe over its seeds, by truth on held-out questions, at the last step."""

    name: str
    title: str
    seeds: tuple[int, ...]
    answer: Spread
    all_stages: Spread
    valid: Spread
    against_baseline: Spread
    """Answers less answer-only GRPO's, seed by seed; 0 for answer-only GRPO itself."""
    steps_to_baseline: int | None
    """The first examined step at which the mean over seeds reaches what answer-only GRPO reaches at the end."""
    seconds: float
    """Of the steps of one run, on average, while others ran beside it."""
    curve: tuple[CurvePoint, ...]


class Ablation(Frozen):
    """All recipes under one budget."""

    steps: int
    command: str
    results: Annotated[tuple[RecipeResult, ...], Field(min_length=1)]


def summarise(logs: Logs, *, steps: int, command: str) -> Ablation:
    """The ablation from the logs of its runs.

    Raises:
        UsageError: a run lacks an examination after `steps`, or the recipes have no seed in common.
    """
    for name, runs in logs.items():
        for seed, log in runs.items():
            if not any(exam.step == steps for exam in log.exams):
                raise UsageError(
                    f"the run {name}, seed {seed} was not examined at step {steps}; run the ablation again."
                )
    goal = float(np.mean([exam_at(log, steps).held_out["answer"] for log in logs[BASELINE.name].values()]))
    results = [_result(recipe, logs, steps=steps, goal=goal) for recipe in RECIPES if recipe.name in logs]
    return Ablation(steps=steps, command=command, results=tuple(results))


def exam_at(log: RunLog, step: int) -> ExamLine:
    return next(exam for exam in log.exams if exam.step == step)


def _result(recipe: Recipe, logs: Logs, *, steps: int, goal: float) -> RecipeResult:
    runs = logs[recipe.name]
    last = [exam_at(log, steps) for log in runs.values()]
    curve = _curve(list(runs.values()), steps)
    return RecipeResult(
        name=recipe.name,
        title=recipe.title,
        seeds=tuple(runs),
        answer=spread([exam.held_out["answer"] for exam in last]),
        all_stages=spread([float(np.mean(list(exam.held_out.values()))) for exam in last]),
        valid=spread([exam.valid for exam in last]),
        against_baseline=_difference(runs, logs[BASELINE.name], steps),
        steps_to_baseline=next((point.step for point in curve if point.step and point.answer.mean >= goal), None),
        seconds=float(np.mean([sum(sum(line.seconds.values()) for line in log.steps) for log in runs.values()])),
        curve=curve,
    )


def _curve(runs: Sequence[RunLog], steps: int) -> tuple[CurvePoint, ...]:
    """At the steps that all runs examined, up to the last."""
    by_step = [{exam.step: exam.held_out["answer"] for exam in log.exams if exam.step <= steps} for log in runs]
    shared = sorted(set.intersection(*(set(one) for one in by_step)))
    return tuple(CurvePoint(step=step, answer=spread([one[step] for one in by_step])) for step in shared)


def _difference(runs: Mapping[int, RunLog], baseline: Mapping[int, RunLog], steps: int) -> Spread:
    own = {str(seed): exam_at(log, steps).held_out["answer"] for seed, log in runs.items()}
    other = {str(seed): exam_at(log, steps).held_out["answer"] for seed, log in baseline.items()}
    found = paired_bootstrap(own, other, rng=np.random.default_rng(0))
    return Spread(mean=found.mean, low=found.low, high=found.high)


def spread(values: Sequence[float]) -> Spread:
    """Mean and interval; the generator is fixed, so that the same runs give the same interval."""
    found = bootstrap_mean(values, rng=np.random.default_rng(0))
    return Spread(mean=found.mean, low=found.low, high=found.high)
