"""The runs of an ablation: which there are, and how they share the machine."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rubricem_agent.build.train import Trainer, TrainingPlan
from rubricem_agent.learn.metrics_log import METRICS_FILE, read_log
from rubricem_agent.learn.recipes import RECIPES, Recipe
from rubricem_agent.viewer.training_run import read_run
from rubricem_env.domain.errors import ConfigError, UsageError

POLL_SECONDS = 0.5
_OWN = {"credit", "meta_policy", "seed", "steps", "out", "evaluate_every", "checkpoint_every"}
"""Settings that each run has from its recipe, or that may differ when a run goes on."""


class AblationRun(NamedTuple):
    """One recipe with one seed."""

    recipe: Recipe
    seed: int
    plan: TrainingPlan

    @property
    def name(self) -> str:
        return f"{self.recipe.title}, seed {self.seed}"

    @property
    def steps_done(self) -> int:
        """By its log; 0 before it has one."""
        if not (self.plan.out / METRICS_FILE).is_file():
            return 0
        steps = read_log(self.plan.out).steps
        return steps[-1].step if steps else 0

    @property
    def is_finished(self) -> bool:
        """Whether it was examined after its last step."""
        if not (self.plan.out / METRICS_FILE).is_file():
            return False
        return any(exam.step == self.plan.steps for exam in read_log(self.plan.out).exams)


def plan_runs(base: TrainingPlan, *, seeds: int, steps: int | None) -> list[AblationRun]:
    """Every recipe with every seed, seed by seed, so that an ablation cut short has whole comparisons."""
    wanted = steps or base.steps
    return [
        AblationRun(recipe, seed, _plan(base, recipe, seed=seed, steps=wanted))
        for seed in range(seeds)
        for recipe in RECIPES
    ]


def run_all(
    runs: Sequence[AblationRun], *, jobs: int, environ: Mapping[str, str], report: Callable[[], None]
) -> dict[str, str]:
    """Run what is not finished, `jobs` at a time; a failed run does not stop the others. Returns the failures by name.

    An interrupt stops all that run and is raised again.
    """
    waiting = [run for run in runs if not run.is_finished]
    running: list[tuple[AblationRun, Trainer]] = []
    failures: dict[str, str] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                run = waiting.pop(0)
                try:
                    running.append((run, Trainer.start(run.plan, environ)))
                except ConfigError as refused:
                    failures[run.name] = str(refused)
            time.sleep(POLL_SECONDS)
            ended = [pair for pair in running if not pair[1].is_running]
            running = [pair for pair in running if pair not in ended]
            failures |= {run.name: message for run, trainer in ended if (message := _outcome(trainer))}
            report()
    finally:
        for _, trainer in running:
            trainer.stop()
        for _, trainer in running:
            # One that has failed by itself meanwhile must not keep the others from being ended.
            _outcome(trainer)
    return failures


def refuse_other_settings(runs: Sequence[AblationRun], asked: Mapping[str, Any]) -> None:
    """A finished run is not run again, so its settings must be those that are asked for now.

    Raises:
        ConfigError: they are not.
    """
    for run in runs:
        if not run.is_finished:
            continue
        kept = read_run(run.plan.out).settings
        for key, value in asked.items():
            if key in kept and key not in _OWN and _differs(value, kept[key]):
                raise ConfigError(
                    f"{run.plan.out} holds a finished run with {key}={kept[key]}, and {key}={value} is asked for. Write "
                    "this ablation into another folder with out=FOLDER, or put the settings back."
                )


def _differs(asked: object, kept: object) -> bool:
    """Of a section only the keys that are asked for count; YAML reads 4e-5 as text."""
    if isinstance(asked, Mapping) and isinstance(kept, Mapping):
        return any(_differs(value, kept.get(key)) for key, value in asked.items() if key in kept)
    if isinstance(asked, str) and isinstance(kept, int | float):
        try:
            return float(asked) != kept
        except ValueError:
            return True
    return asked != kept


def _plan(base: TrainingPlan, recipe: Recipe, *, seed: int, steps: int) -> TrainingPlan:
    out: Path = base.out / recipe.name / f"seed-{seed}"
    changes = (*base.changes, *recipe.changes, f"seed={seed}", f"steps={steps}", f"out={out}")
    return base._replace(changes=changes, out=out, steps=steps)


def _outcome(trainer: Trainer) -> str:
    """Why it failed; nothing where it did not."""
    try:
        trainer.finish()
    except UsageError as mistake:
        return str(mistake)
    return ""
