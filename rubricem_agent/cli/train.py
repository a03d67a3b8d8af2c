"""`rubricem train`: run the local trainer, watch it, stop it, go on.

A run on the terminal while it trains: a bar and the latest steps, or a line a step where nobody watches.
"""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table

from rubricem_agent.build.training import (
    Tracker,
    Trainer,
    TrainingPlan,
    current_environment,
    interruptible,
    open_trackers,
    read_plan,
    scalars,
    trainer_environment,
)
from rubricem_agent.cli.terminal import JsonOption, QuietOption, Terminal
from rubricem_agent.learn.metrics import (
    METRICS_FILE,
    EvaluationLine,
    LogFollower,
    LogLine,
    RunLog,
    StepLine,
    WarningLine,
)
from rubricem_agent.learn.monitor import compare_with, find_expected
from rubricem_agent.viewer.logs import RecordedRun, read_run
from rubricem_env.domain.base import STAGES

_SHOWN = 8
"""Steps in the table."""


class TrainScreen:
    """Shows each line of a run's log as it comes; a context, so that the terminal is given back."""

    def __init__(self, console: Console, steps: int) -> None:
        self._console = console
        self._steps = steps
        self._latest: deque[StepLine] = deque(maxlen=_SHOWN)
        self._exam: EvaluationLine | None = None
        self._live = Live(console=console, refresh_per_second=4) if console.is_terminal else None

    def __enter__(self) -> "TrainScreen":
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def show(self, line: LogLine) -> None:
        if isinstance(line, StepLine):
            self._latest.append(line)
        elif isinstance(line, EvaluationLine):
            self._exam = line
        if isinstance(line, WarningLine):
            self._console.print(f"[yellow]{escape(line.alarm)}[/]")
        elif self._live is None:
            self._console.print(describe_line(line, self._steps), highlight=False, markup=False, soft_wrap=True)
        if self._live:
            self._live.update(self.render())

    def render(self) -> RenderableType:
        """The bar, the latest steps, the latest examination."""
        done = self._latest[-1].step if self._latest else 0
        bar = ProgressBar(total=self._steps, completed=done, width=60)
        parts: list[RenderableType] = [f"step {done} of {self._steps}", bar, render_steps(self._latest)]
        if self._exam is not None:
            parts.append(describe_line(self._exam, self._steps))
        return Group(*parts)


def render_steps(lines: "deque[StepLine]") -> Table:
    """A row a step: true scores by stage with the judge's beside them, and what training does to the policy."""
    stages = [f"{stage.value}\ntrue|judge" for stage in STAGES]
    table = Table("step", "", *stages, "KL", "entropy", "bank", "utility", "tokens/s", "s", box=None, pad_edge=False)
    for line in lines:
        scores = [f"{line.true.get(stage.value, 0):.2f}|{_number(line.judged.get(stage.value))}" for stage in STAGES]
        task = line.task
        kl, entropy = (_number(task.kl, 4), _number(task.entropy, 3)) if task else ("-", "-")
        rest = [kl, entropy, str(line.bank), _number(line.utility), f"{tokens_per_second(line):,.0f}"]
        table.add_row(str(line.step), line.encounter, *scores, *rest, f"{sum(line.seconds.values()):.1f}")
    return table


def describe_line(line: LogLine, steps: int) -> str:
    """One line in words and numbers."""
    if isinstance(line, WarningLine):
        return line.alarm
    if isinstance(line, EvaluationLine):
        scores = " ".join(f"{stage} {value:.2f}" for stage, value in line.held_out.items())
        return f"step {line.step}: held-out questions, by truth: {scores}; {line.valid:.0%} valid"
    scores = " ".join(f"{stage} {value:.2f}" for stage, value in line.true.items())
    kl = f" KL {line.task.kl:.4f}" if line.task else " nothing to learn from"
    return (
        f"step {line.step}/{steps} {line.encounter}: true {scores};{kl}; bank {line.bank}; utility "
        f"{_number(line.utility)}; {tokens_per_second(line):,.0f} tokens/s; {sum(line.seconds.values()):.1f} s"
    )


def tokens_per_second(line: StepLine) -> float:
    """Sampled tokens over the seconds of sampling and judging; 0 where they were not counted."""
    seconds = line.seconds.get("sample", 0.0)
    return line.habits.policy_tokens / seconds if line.habits and seconds > 0 else 0.0


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


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
    trained = (
        read_run(plan.out) if (plan.out / METRICS_FILE).is_file() else RecordedRun(plan.out, {}, RunLog([], [], []))
    )
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
        "first_held_out": log.evaluations[0].held_out if log.evaluations else None,
        "last_held_out": log.evaluations[-1].held_out if log.evaluations else None,
        "bank": log.steps[-1].bank if log.steps else 0,
        "alarms": [line.alarm for line in log.warnings],
        "seconds": round(seconds, 1),
    }


def _hold_against_others(run: RecordedRun) -> str | None:
    """A sentence on how the run lies to earlier runs with its settings; None where none are known."""
    curve = find_expected(run.recipe, run.settings) if run.recipe else None
    return compare_with(curve, run.log) if curve else None


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


def follow(trainer: Trainer, follower: LogFollower) -> Iterator[LogLine]:
    """The log's lines as they are written, until the trainer has ended."""
    while trainer.is_running:
        yield from follower.new_lines()
        time.sleep(POLL_SECONDS)
    yield from follower.new_lines()
