"""`rubricem ablate`: the paper's four recipes over seeds under one budget, with table, figure and page."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from rubricem_agent.build.train import (
    TrainingPlan,
    current_environment,
    interruptible,
    read_fields,
    read_plan,
    trainer_environment,
)
from rubricem_agent.cli.ablate_runs import AblationRun, plan_runs, refuse_other_settings, run_all
from rubricem_agent.cli.terminal import JsonOption, QuietOption, Terminal, plain_table
from rubricem_agent.learn.expected import make_expected
from rubricem_agent.viewer.ablation import ABLATION_FILE, Ablation, summarise
from rubricem_agent.viewer.ablation_report import HEAD, render_figure, result_cells
from rubricem_agent.viewer.run_report import render_report
from rubricem_agent.viewer.training_run import Run, read_run
from rubricem_env.domain.errors import UsageError

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
    trained: dict[str, dict[int, Run]] = {}
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


def _write(base: TrainingPlan, found: Ablation, trained: dict[str, dict[int, Run]]) -> None:
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
