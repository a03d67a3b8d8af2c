"""`rubricem train`: run the local trainer, watch it, stop it, go on."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

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
from rubricem_agent.cli.train_screen import TrainScreen
from rubricem_agent.learn.metrics_log import AlarmLine, ExamLine, LogFollower, StepLine

POLL_SECONDS = 0.25


def train(
    config: Annotated[Path, typer.Argument(help="YAML, such as configs/local_almanac.yaml.")],
    changes: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="On top of the file.")] = None,
    *,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write OUT/tensorboard as well.")] = False,
    wandb: Annotated[bool, typer.Option("--wandb", help="Write an offline W&B run to OUT/wandb as well.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing until the end.")] = False,
) -> None:
    """Train by SS-GRPO in the almanac. Ctrl-C stops; the same command goes on from the last checkpoint."""
    plan = read_plan(config, changes or [])
    trackers = open_trackers(plan.out, tensorboard=tensorboard, wandb=wandb)
    with interruptible():
        _run_watched(plan, trackers, Console(quiet=quiet))
    typer.echo(f"Trained: {plan.out / 'model'}. Its page: rubricem report {plan.out}")


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
