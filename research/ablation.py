"""The ablation over seeds: each recipe's results against answer-only GRPO, its table and its chart."""

from collections.abc import Mapping, Sequence

import numpy as np

from research.line_chart import draw_svg
from rubricem_env.domain.errors import UsageError
from rubricem_records.evaluations.statistics import bootstrap_mean, paired_bootstrap
from rubricem_records.runs.log_lines import EvaluationLine
from rubricem_records.runs.recipes import BASELINE, KNOWN, Recipe
from rubricem_records.runs.run_log import RunLog, answers_by_step
from rubricem_viewer.ablation import Ablation, CurvePoint, RecipeResult, Spread
from rubricem_viewer.api.figures import Curve

Logs = Mapping[str, Mapping[int, RunLog]]
"""By recipe, then by seed."""


def summarise(logs: Logs, *, steps: int, command: str) -> Ablation:
    """The ablation from the logs of its runs.

    Raises:
        UsageError: a run lacks an evaluation after `steps`, or the recipes have no seed in common.
    """
    for name, runs in logs.items():
        for seed, log in runs.items():
            if not any(evaluation.step == steps for evaluation in log.evaluations):
                raise UsageError(
                    f"the run {name}, seed {seed} was not evaluated at step {steps}; run the ablation again."
                )
    if BASELINE.name not in logs:
        raise UsageError(f"no run of {BASELINE.title} has ended, and the others are compared with it.")
    goal = float(np.mean([evaluation_at(log, steps).held_out["answer"] for log in logs[BASELINE.name].values()]))
    results = [_result(recipe, logs, steps=steps, goal=goal) for recipe in KNOWN if recipe.name in logs]
    return Ablation(steps=steps, command=command, results=tuple(results))


def evaluation_at(log: RunLog, step: int) -> EvaluationLine:
    return next(evaluation for evaluation in log.evaluations if evaluation.step == step)


def _result(recipe: Recipe, logs: Logs, *, steps: int, goal: float) -> RecipeResult:
    runs = logs[recipe.name]
    last = [evaluation_at(log, steps) for log in runs.values()]
    curve = curve_over_seeds(list(runs.values()), steps=steps)
    own, baseline = (
        {str(seed): evaluation_at(log, steps).held_out["answer"] for seed, log in of.items()}
        for of in (runs, logs[BASELINE.name])
    )
    gap = paired_bootstrap(own, baseline, rng=np.random.default_rng(0))
    return RecipeResult(
        name=recipe.name,
        title=recipe.title,
        seeds=tuple(runs),
        answer=spread([evaluation.held_out["answer"] for evaluation in last]),
        all_stages=spread([float(np.mean(list(evaluation.held_out.values()))) for evaluation in last]),
        valid=spread([evaluation.valid for evaluation in last]),
        against_baseline=Spread(mean=gap.difference, low=gap.low, high=gap.high),
        steps_to_baseline=next((point.step for point in curve if point.step and point.answer.mean >= goal), None),
        seconds=float(np.mean([sum(sum(line.seconds.values()) for line in log.steps) for log in runs.values()])),
        curve=curve,
    )


def curve_over_seeds(logs: Sequence[RunLog], *, steps: int) -> tuple[CurvePoint, ...]:
    """The held-out answers at each step that all runs were evaluated at, up to `steps`."""
    shared = answers_by_step(logs)
    return tuple(CurvePoint(step=step, answer=spread(values)) for step, values in shared.items() if step <= steps)


def spread(values: Sequence[float]) -> Spread:
    """Mean and interval; the generator is fixed, so that the same runs give the same interval."""
    interval = bootstrap_mean(values, rng=np.random.default_rng(0))
    return Spread(mean=float(np.mean(values)), low=interval.low, high=interval.high)


FIGURE_TITLE = "Held-out answers by truth, mean over seeds with 95 % interval"


def result_cells(result: RecipeResult) -> dict[str, str]:
    """A row of the table for a terminal, by column; the page has more."""
    return {
        "recipe": result.title,
        "answers": spread_cell(result.answer),
        "against answer-only": "-" if result.name == BASELINE.name else spread_cell(result.against_baseline, "+"),
        "steps to answer-only's end": str(result.steps_to_baseline or "not reached"),
    }


def render_figure(ablation: Ablation) -> str:
    """The figure as an SVG file of its own."""
    return draw_svg(FIGURE_TITLE, [figure_curve(result.title, result.curve) for result in ablation.results])


def figure_curve(title: str, points: Sequence[CurvePoint]) -> Curve:
    """The answers over the steps with their interval, as a figure has them."""
    return Curve(
        name=title,
        x=tuple(float(at.step) for at in points),
        y=tuple(at.answer.mean for at in points),
        low=tuple(at.answer.low for at in points),
        high=tuple(at.answer.high for at in points),
    )


def spread_cell(value: Spread, sign: str = "") -> str:
    """The mean, and the interval where there is one."""
    if value.low == value.high:  # one seed has no interval
        return f"{value.mean:{sign}.3f}"
    return f"{value.mean:{sign}.3f} ({value.low:{sign}.3f} to {value.high:{sign}.3f})"
