"""`rubricem ablate`: the paper's four recipes over seeds under one budget, with table, figure and page.

The runs of an ablation: which there are, and how they share the machine.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.markup import escape

from rubricem_agent.build.training import (
    Trainer,
    TrainingPlan,
    current_environment,
    interruptible,
    read_fields,
    read_plan,
    trainer_environment,
)
from rubricem_agent.cli.terminal import JsonOption, QuietOption, Terminal, plain_table
from rubricem_agent.learn.metrics import METRICS_FILE, read_log
from rubricem_agent.learn.monitor import RECIPES, Recipe, make_expected
from rubricem_agent.viewer.ablation import ABLATION_FILE, HEAD, Ablation, render_figure, result_cells, summarise
from rubricem_agent.viewer.logs import RecordedRun, read_run
from rubricem_agent.viewer.report import render_report
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
        return any(exam.step == self.plan.steps for exam in read_log(self.plan.out).evaluations)


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


DEFAULT_CONFIG = Path("configs/ablation_almanac.yaml")


def ablate(
    config: Annotated[Path, typer.Argument(help="YAML; what all recipes share.")] = DEFAULT_CONFIG,
    changes: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="On top of the file.")] = None,
    *,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each recipe, from 0.")] = 3,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of each run; the config's by default.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time, each on one core.")] = 2,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Train every recipe with every seed and compare them by truth. Ctrl-C stops; the same command goes on."""
    base = read_plan(config, changes or [])
    runs = plan_runs(base, seeds=seeds, steps=steps)
    refuse_other_settings(runs, read_fields(config, changes or []))
    terminal = Terminal(as_json=as_json, is_quiet=quiet)
    failures = _run_watched(runs, jobs=jobs, terminal=terminal)
    if failures:
        told = "; ".join(f"{name}: {message}" for name, message in failures.items())
        raise UsageError(f"{len(failures)} of {len(runs)} runs failed; the same command tries them again. {told}")
    trained: dict[str, dict[int, RecordedRun]] = {}
    for run in runs:
        trained.setdefault(run.recipe.name, {})[run.seed] = read_run(run.plan.out)
    logs = {name: {seed: run.log for seed, run in of_recipe.items()} for name, of_recipe in trained.items()}
    command = (
        f"rubricem ablate {config} {' '.join(changes or [])}".rstrip()
        + f" --seeds {seeds} --steps {runs[0].plan.steps}"
    )
    found = summarise(logs, steps=runs[0].plan.steps, command=command)
    _write(base, found, trained)
    _show_table(found, terminal)
    terminal.close(
        found,
        {"page": base.out / "ablation.html", "figure": base.out / "ablation.svg", "numbers": base.out / ABLATION_FILE},
        brief=str(base.out / ABLATION_FILE),
    )


def _run_watched(runs: list[AblationRun], *, jobs: int, terminal: Terminal) -> dict[str, str]:
    try:
        with interruptible(), terminal.progress() as bars:
            tasks = {run.name: bars.add_task(escape(run.name), total=run.plan.steps) for run in runs}

            def report() -> None:
                for run in runs:
                    bars.update(tasks[run.name], completed=run.steps_done)

            report()
            environ = trainer_environment(current_environment(), threads=1)
            return run_all(runs, jobs=jobs, environ=environ, report=report)
    except KeyboardInterrupt as interrupt:
        typer.echo("\nstopped; the same command goes on from the last checkpoints.", err=True)
        raise typer.Exit(130) from interrupt


def _write(base: TrainingPlan, found: Ablation, trained: dict[str, dict[int, RecordedRun]]) -> None:
    try:
        (base.out / ABLATION_FILE).write_text(found.model_dump_json(indent=1) + "\n", encoding="utf-8")
        (base.out / "ablation.svg").write_text(render_figure(found), encoding="utf-8")
        (base.out / "ablation.html").write_text(render_report(base.out), encoding="utf-8")
        folder = base.out / "expected"
        folder.mkdir(exist_ok=True)
        for name, of_recipe in trained.items():
            runs = list(of_recipe.values())
            logs = [run.log for run in runs]
            curve = make_expected(name, logs, settings=runs[0].settings, made_by=found.command)
            (folder / f"{name}.json").write_text(curve.model_dump_json(indent=1) + "\n", encoding="utf-8")
    except OSError as cause:
        raise UsageError(f"cannot write to {base.out}: {cause.strerror}. Make room; the runs are kept.") from cause


def _show_table(found: Ablation, terminal: Terminal) -> None:
    """What fits on a terminal; the page has all columns."""
    shown = [HEAD.index(name) for name in ("recipe", "answers", "against answer-only", "steps to answer-only's end")]
    table = plain_table(*(HEAD[column] for column in shown))
    for result in found.results:
        cells = result_cells(result)
        table.add_row(*(escape(cells[column]) for column in shown))
    terminal.show(table)
