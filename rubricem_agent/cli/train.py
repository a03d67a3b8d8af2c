"""`rubricem train`: run the local trainer, watch it, stop it, go on."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from rubricem_agent.build.trackers import Tracker, open_trackers, scalars
from rubricem_agent.build.train import (
    Trainer,
    TrainingPlan,
    current_environment,
    interruptible,
    read_plan,
    trainer_environment,
)
from rubricem_agent.cli.terminal import JsonOption, QuietOption, Terminal
from rubricem_agent.cli.train_screen import TrainScreen
from rubricem_agent.learn.expected import compare_with, find_expected
from rubricem_agent.learn.metrics_log import METRICS_FILE, AlarmLine, ExamLine, LogFollower, RunLog, StepLine
from rubricem_agent.viewer.training_run import Run, read_run

POLL_SECONDS = 0.25


def train(
    config: Annotated[Path, typer.Argument(help="YAML, such as configs/local_almanac.yaml.")],
    changes: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="On top of the file.")] = None,
    *,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write OUT/tensorboard as well.")] = False,
    wandb: Annotated[bool, typer.Option("--wandb", help="Write an offline W&B run to OUT/wandb as well.")] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Train by SS-GRPO in the almanac. Ctrl-C stops; the same command goes on from the last checkpoint."""
    plan = read_plan(config, changes or [])
    trackers = open_trackers(plan.out, tensorboard=tensorboard, wandb=wandb)
    terminal = Terminal(as_json=as_json, is_quiet=quiet)
    began = time.monotonic()
    with interruptible():
        # A line a step is news, and no table: it is as wide as it is.
        _run_watched(plan, trackers, Console(quiet=terminal.is_silent))
    trained = read_run(plan.out) if (plan.out / METRICS_FILE).is_file() else Run(plan.out, {}, RunLog([], [], []))
    model = str(plan.out / "model")
    told = {**_describe(trained.log, seconds=time.monotonic() - began), "expected": _hold_against_others(trained)}
    terminal.close({"model": model, "out": str(plan.out), **told}, {**_rows(told), "model": model}, brief=model)
    if told["expected"]:
        terminal.say(f"Its answers are {told['expected']}.")
    terminal.say(f"Trained: {model}. Its page: rubricem report {plan.out}")


def _describe(log: RunLog, *, seconds: float) -> dict[str, Any]:
    """What the run came to; examinations of held-out questions are by truth."""
    return {
        "steps": log.steps[-1].step if log.steps else 0,
        "first_held_out": log.exams[0].held_out if log.exams else None,
        "last_held_out": log.exams[-1].held_out if log.exams else None,
        "bank": log.steps[-1].bank if log.steps else 0,
        "alarms": [line.alarm for line in log.alarms],
        "seconds": round(seconds, 1),
    }


def _hold_against_others(run: Run) -> str | None:
    """A sentence on how the run lies to earlier runs with its settings; None where none are known."""
    curve = find_expected(run.recipe, run.settings) if run.recipe else None
    departure = compare_with(curve, run.log) if curve else None
    return departure.sentence if departure else None


def _rows(told: Mapping[str, Any]) -> dict[str, object]:
    rows: dict[str, object] = {"steps": told["steps"], "lessons in the bank": told["bank"]}
    for when in ("first", "last"):
        if (held_out := told[f"{when}_held_out"]) is not None:
            scores = "  ".join(f"{stage} {value:.2f}" for stage, value in held_out.items())
            rows[f"held-out questions, {when}"] = scores
    return {**rows, "alarms": len(told["alarms"]), "seconds of this start": told["seconds"]}


def _run_watched(plan: TrainingPlan, trackers: Sequence[Tracker], console: Console) -> None:
    follower = LogFollower(plan.out, skip_present=True)
    trainer = Trainer.start(plan, trainer_environment(current_environment()))
    try:
        with TrainScreen(console, plan.steps) as screen:
            for line in follow(trainer, follower):
                screen.show(line)
                for tracker in trackers:
                    tracker.record(line.step, scalars(line))
    except KeyboardInterrupt as interrupt:
        trainer.stop()
        typer.echo("\nstopped; the same command goes on from the last checkpoint.", err=True)
        raise typer.Exit(130) from interrupt
    finally:
        trainer.stop()
        for tracker in trackers:
            tracker.close()
        trainer.finish()


def follow(trainer: Trainer, follower: LogFollower) -> Iterator[StepLine | ExamLine | AlarmLine]:
    """The log's lines as they are written, until the trainer has ended."""
    while trainer.is_running:
        yield from follower.new_lines()
        time.sleep(POLL_SECONDS)
    yield from follower.new_lines()
