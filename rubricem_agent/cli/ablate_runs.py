"""The runs of an ablation: which there are, and how they share the machine."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rubricem_agent.build.train import Trainer, TrainingPlan
from rubricem_agent.learn.metrics_log import METRICS_FILE, read_log
from rubricem_agent.learn.recipes import RECIPES, Recipe
from rubricem_env.domain.errors import UsageError

POLL_SECONDS = 0.5


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
                running.append((run, Trainer.start(run.plan, environ)))
            time.sleep(POLL_SECONDS)
            ended = [pair for pair in running if not pair[1].is_running]
            running = [pair for pair in running if pair not in ended]
            failures |= {run.name: message for run, trainer in ended if (message := _outcome(trainer))}
            report()
    finally:
        for _, trainer in running:
            trainer.stop()
            trainer.finish()
    return failures


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
