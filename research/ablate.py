"""Trains the paper's four recipes over several seeds, and compares them in a table, a figure and a page.

python -m research.ablate [CONFIG] [KEY=VALUE ...] [--seeds 3] [--steps N] [--jobs 2] [--methods credit]
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.markup import escape

from research.ablation import render_figure, result_cells, summarise
from research.arena import render_arena
from rubricem_agent.cli.command import command, run_command
from rubricem_agent.cli.terminal import Terminal, plain_table
from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_records.files.atomic_files import writing
from rubricem_records.runs.expected_curves import make_expected
from rubricem_records.runs.recipes import RECIPES, Recipe, choose_recipes
from rubricem_records.runs.recorded_run import RecordedRun, read_run
from rubricem_records.runs.run_log import METRICS_FILE, RunLog, read_log
from rubricem_viewer.ablation import ABLATION_FILE, Ablation
from rubricem_viewer.report import render_report
from trainers.cli.train import ChangesArgument
from trainers.local.settings import LocalConfig, with_system
from trainers.process import Trainer, TrainerCommand, interruptible, read_trainer_command, trainer_environment
from trainers.settings import read_settings

_POLL_SECONDS = 0.5
_FREE_SETTINGS = {"credit", "meta_policy", "seed", "steps", "out", "evaluate_every", "checkpoint_every"}
"""Settings that come from the recipe, or that may change when a run is resumed."""


class AblationRun(NamedTuple):
    """One recipe with one seed."""

    recipe: Recipe
    seed: int
    trainer: TrainerCommand

    @property
    def name(self) -> str:
        return f"{self.recipe.title}, seed {self.seed}"

    @property
    def log(self) -> RunLog:
        """Empty before the run has written one."""
        out = self.trainer.out
        return read_log(out) if (out / METRICS_FILE).is_file() else RunLog([], [], [])

    @property
    def is_finished(self) -> bool:
        """Whether the run was evaluated after its last step."""
        return any(evaluation.step == self.trainer.steps for evaluation in self.log.evaluations)


def list_runs(
    base: TrainerCommand, *, seeds: int, steps: int | None, recipes: Sequence[Recipe] = RECIPES
) -> list[AblationRun]:
    """Every recipe with every seed, seed by seed, so that an interrupted ablation has whole comparisons."""
    runs = []
    for seed in range(seeds):
        for recipe in recipes:
            out = base.out / recipe.name / f"seed-{seed}"
            wanted = steps or base.steps
            changes = (*base.changes, *recipe.changes, f"seed={seed}", f"steps={wanted}", f"out={out}")
            runs.append(AblationRun(recipe, seed, base._replace(changes=changes, out=out, steps=wanted)))
    return runs


def run_all(
    runs: Sequence[AblationRun], *, jobs: int, environ: Mapping[str, str], report: Callable[[], None]
) -> dict[str, str]:
    """Run what is not finished, `jobs` at a time; a failed run does not stop the others. Returns the failures by name.

    An interrupt stops all running trainers and is raised again.
    """
    waiting = [run for run in runs if not run.is_finished]
    running: list[tuple[AblationRun, Trainer]] = []
    failures: dict[str, str] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                run = waiting.pop(0)
                try:
                    running.append((run, Trainer.start(run.trainer, environ)))
                except ConfigError as refused:
                    failures[run.name] = str(refused)
            time.sleep(_POLL_SECONDS)
            ended = [pair for pair in running if not pair[1].is_running]
            running = [pair for pair in running if pair not in ended]
            failures |= {run.name: message for run, trainer in ended if (message := _failure(trainer))}
            report()
    finally:
        for _, trainer in running:
            trainer.stop()
        for _, trainer in running:
            # A trainer that failed meanwhile must not keep the others from being finished.
            _failure(trainer)
    return failures


def _failure(trainer: Trainer) -> str:
    """The reason why the trainer failed; empty where it did not."""
    try:
        trainer.finish()
    except UsageError as failure:
        return str(failure)
    return ""


def _check_settings(runs: Sequence[AblationRun], config: Path, changes: Sequence[str]) -> None:
    """Raise ConfigError where a finished run, which is not run again, has other settings than requested."""
    for run in runs:
        if not run.is_finished:
            continue
        recorded = read_run(run.trainer.out).settings
        requested = with_system(read_settings(config, LocalConfig, changes=[*changes, *run.recipe.more]))
        for key, value in requested.model_dump(mode="json").items():
            if key not in _FREE_SETTINGS and _differs(value, recorded.get(key)):
                raise ConfigError(
                    f"{run.trainer.out} holds a finished run with {key}={recorded.get(key)}; {key}={value} is "
                    "requested. Write this ablation to another folder with out=FOLDER, or restore the settings."
                )


def _differs(requested: object, recorded: object) -> bool:
    """Whether settings differ, at any depth. An open seed does not count: it is the run's."""
    if isinstance(requested, Mapping) and isinstance(recorded, Mapping):
        return any(
            _differs(requested.get(key), recorded.get(key))
            for key in requested.keys() | recorded.keys()
            if not (key == "seed" and requested.get(key) is None)
        )
    return requested != recorded


@command
def ablate(
    terminal: Terminal,
    config: Annotated[Path, typer.Argument(help="YAML shared by all recipes.")] = Path("ablation_almanac"),
    changes: ChangesArgument = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each recipe, from 0.")] = 3,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of each run; the config's by default.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time, each on one core.")] = 2,
    methods: Annotated[
        str | None, typer.Option(help="Instead of the four recipes: credit, references, all, or names with commas.")
    ] = None,
    finished: Annotated[
        bool, typer.Option("--finished", help="Train nothing; compare the runs that have ended.")
    ] = False,
) -> None:
    """Train every recipe with every seed and compare them by truth. Ctrl-C stops; the same command resumes."""
    base = read_trainer_command(config, changes or [])
    recipes = choose_recipes(methods) if methods else RECIPES
    runs = list_runs(base, seeds=seeds, steps=steps, recipes=recipes)
    if finished:
        runs = [run for run in runs if run.is_finished]
    _check_settings(runs, config, changes or [])
    failures = _run_watched(runs, jobs=jobs, terminal=terminal)
    if failures:
        reasons = "; ".join(f"{name}: {message}" for name, message in failures.items())
        raise UsageError(f"{len(failures)} of {len(runs)} runs failed; the same command tries them again. {reasons}")
    trained: dict[str, dict[int, RecordedRun]] = {}
    for run in runs:
        trained.setdefault(run.recipe.name, {})[run.seed] = read_run(run.trainer.out)
    logs = {name: {seed: run.log for seed, run in of_recipe.items()} for name, of_recipe in trained.items()}
    wanted = steps or base.steps
    written = (
        f"python -m research.ablate {config} {' '.join(changes or [])}".rstrip() + f" --seeds {seeds} --steps {wanted}"
    )
    written += f" --methods {methods}" if methods else ""
    ablation = summarise(logs, steps=wanted, command=written)
    _write(base.out, ablation, trained)
    if methods:
        page = render_arena(logs, recipes, steps=wanted, command=written)
        (base.out / "arena.md").write_text(page, encoding="utf-8")
    rows = [result_cells(result) for result in ablation.results]
    terminal.show(plain_table(*rows[0], rows=[list(map(escape, row.values())) for row in rows]))
    numbers = base.out / ABLATION_FILE
    pages = {
        "page": base.out / ("arena.md" if methods else "ablation.html"),
        "figure": base.out / "ablation.svg",
        "numbers": numbers,
    }
    terminal.close(ablation, pages, brief=str(numbers))


def _run_watched(runs: list[AblationRun], *, jobs: int, terminal: Terminal) -> dict[str, str]:
    try:
        with interruptible(), terminal.progress() as bars:
            tasks = {run.name: bars.add_task(escape(run.name), total=run.trainer.steps) for run in runs}

            def report() -> None:
                for run in runs:
                    steps = run.log.steps
                    bars.update(tasks[run.name], completed=steps[-1].step if steps else 0)

            report()
            return run_all(runs, jobs=jobs, environ=trainer_environment(threads=1), report=report)
    except KeyboardInterrupt as interrupt:
        typer.echo("\nstopped; the same command resumes from the last checkpoints.", err=True)
        raise typer.Exit(130) from interrupt


def _write(out: Path, ablation: Ablation, trained: dict[str, dict[int, RecordedRun]]) -> None:
    with writing(out, "Free some space; the runs remain."):
        (out / ABLATION_FILE).write_text(ablation.model_dump_json(indent=1) + "\n", encoding="utf-8")
        (out / "ablation.svg").write_text(render_figure(ablation), encoding="utf-8")
        (out / "ablation.html").write_text(render_report(out), encoding="utf-8")
        folder = out / "expected"
        folder.mkdir(exist_ok=True)
        for name, of_recipe in trained.items():
            runs = list(of_recipe.values())
            curve = make_expected(name, [run.log for run in runs], settings=runs[0].settings, made_by=ablation.command)
            (folder / f"{name}.json").write_text(curve.model_dump_json(indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run_command(ablate)
