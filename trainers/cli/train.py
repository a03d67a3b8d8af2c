"""`rubricem train`: train by SS-GRPO in a process of its own, and show its progress."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from rubricem_agent.cli.command import command
from rubricem_agent.cli.terminal import Terminal
from rubricem_agent.learn.checkpoint import checkpoint_steps
from rubricem_records.runs.expected_curves import compare_with, find_expected
from rubricem_records.runs.following import follow_log
from rubricem_records.runs.recorded_run import RecordedRun, read_run
from rubricem_records.runs.run_log import METRICS_FILE, RunLog

from ..process import Trainer, TrainerCommand, interruptible, read_trainer_command, trainer_environment
from ..tracking import TRACKERS, Tracker, open_trackers
from .log_lines import show_line

_POLL_SECONDS = 0.25
ChangesArgument = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Override the file.")]
train_app = typer.Typer(add_completion=False)


# An unknown option is read as a setting, and refused with the way to write one.
@train_app.command(context_settings={"ignore_unknown_options": True})
@command
def train(
    terminal: Terminal,
    config: Annotated[Path, typer.Argument(help="YAML, or the name of a config of the package, such as demo_almanac.")],
    changes: ChangesArgument = None,
    track: Annotated[list[str] | None, typer.Option(metavar="NAME", help=f"Report to it as well: {TRACKERS}.")] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="As --track tensorboard.")] = False,
    wandb: Annotated[bool, typer.Option("--wandb", help="As --track wandb.")] = False,
) -> None:
    """Train by SS-GRPO, in the almanac or on your own questions.

    Ctrl-C stops; the same command resumes from the last checkpoint.
    """
    trainer = read_trainer_command(config, changes or [])
    if (saved := _saved_steps(trainer.out)) and saved[-1] < trainer.steps:
        terminal.say(f"resuming after step {saved[-1]} of {trainer.steps}, from its checkpoint in {trainer.out}")
    began = time.monotonic()
    with ExitStack() as closing:
        chosen = [*(track or []), *["tensorboard"] * tensorboard, *["wandb"] * wandb]
        trackers = open_trackers(trainer.out, chosen, closing=closing)
        with interruptible():
            _run_watched(trainer, trackers, Console(quiet=terminal.is_silent))
    out, model = trainer.out, str(trainer.out / "model")
    run = read_run(out) if (out / METRICS_FILE).is_file() else RecordedRun(out, {}, RunLog([], [], []))
    steps, evaluations = run.log.steps, run.log.evaluations
    result: dict[str, Any] = {
        "steps": steps[-1].step if steps else 0,
        "first_held_out": evaluations[0].held_out if evaluations else None,
        "last_held_out": evaluations[-1].held_out if evaluations else None,
        "bank": steps[-1].bank if steps else 0,
        "warnings": [line.warning for line in run.log.warnings],
        "seconds": round(time.monotonic() - began, 1),
    }
    # One sentence that compares the run with earlier runs of the same settings.
    curve = find_expected(run.recipe, run.settings) if run.recipe else None
    sentence = compare_with(curve, run.log) if curve else None
    rows: dict[str, object] = {"steps": result["steps"], "lessons in the bank": result["bank"]}
    for when in ("first", "last"):
        if (held_out := result[f"{when}_held_out"]) is not None:
            scores = "  ".join(f"{stage} {value:.2f}" for stage, value in held_out.items())
            rows[f"held-out questions, {when}"] = scores
    rows |= {"warnings": len(result["warnings"]), "seconds of this start": result["seconds"], "model": model}
    terminal.close({"model": model, "out": str(out), **result, "expected": sentence}, rows, brief=model)
    if sentence:
        terminal.say(f"Its answers are {sentence}.")
    terminal.say(f"Trained: {model}. Its page: rubricem report {out}")


def _saved_steps(out: Path) -> list[int]:
    """The steps of the checkpoints of a run, in their order."""
    return checkpoint_steps(out / "checkpoints")


def _next_start(out: Path) -> str:
    """What the same command will do."""
    if saved := _saved_steps(out):
        return f"the same command resumes after step {saved[-1]}, the last checkpoint."
    return (
        "no checkpoint was saved yet, so the same command begins anew. checkpoint_every=N saves one after every N "
        "steps."
    )


def _run_watched(started: TrainerCommand, trackers: Sequence[Tracker], console: Console) -> None:
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task("steps", total=started.steps)
    new_lines = follow_log(started.out)

    def show_new() -> None:
        for line in new_lines():
            show_line(line, started.steps, console)
            bar.update(task, completed=line.step, description="steps")
            for tracker in trackers:
                tracker(line)
        for said in trainer.new_progress():
            bar.update(task, description=escape(said))
            if not console.is_terminal:
                console.print(said, highlight=False, markup=False, soft_wrap=True)

    trainer = Trainer.start(started, trainer_environment())
    try:
        with bar:
            while trainer.is_running:
                show_new()
                time.sleep(_POLL_SECONDS)
            show_new()
    except KeyboardInterrupt as interrupt:
        trainer.stop()
        show_new()  # steps that ended before it, or while the trainer stopped
        typer.echo(f"\nstopped; {_next_start(started.out)}", err=True)
        raise typer.Exit(130) from interrupt
    finally:
        trainer.stop()
        trainer.finish()
