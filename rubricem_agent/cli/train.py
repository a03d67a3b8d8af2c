"""`rubricem train`, `train-verl` and `watch`: run a trainer and show its progress, and evaluate what it saves."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from rubricem_agent.cli.terminal import ProbeOption, Terminal, command
from rubricem_agent.evals.suite import find_benchmark
from rubricem_agent.wiring import training
from rubricem_agent.wiring.watch import Engine, Watch, watch as watch_run
from rubricem_records.expected_curves import compare_with, find_expected
from rubricem_records.following import follow_log
from rubricem_records.log_lines import BenchmarkLine, EvaluationLine, LogLine, StepLine, WarningLine
from rubricem_records.recorded_run import RecordedRun, read_run
from rubricem_records.run_log import METRICS_FILE, RunLog

_POLL_SECONDS = 0.25
ChangesArgument = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Override the file.")]


def show_line(line: LogLine, steps: int, console: Console) -> None:
    """Print one line of a run's log; a warning in yellow."""
    if isinstance(line, WarningLine):
        console.print(f"[yellow]{escape(line.warning)}[/]")
    else:
        console.print(describe_line(line, steps), highlight=False, markup=False, soft_wrap=True)


def describe_line(line: StepLine | EvaluationLine | BenchmarkLine, steps: int) -> str:
    """One line of the log as a sentence."""
    if isinstance(line, BenchmarkLine):
        return f"step {line.step}: {line.benchmark} {line.score:.3f} ({line.low:.3f} to {line.high:.3f})"
    if isinstance(line, EvaluationLine):
        scores = " ".join(f"{stage} {value:.2f}" for stage, value in line.held_out.items())
        by = "truth" if line.by == "truth" else "the judge"
        return f"step {line.step}: held-out questions, by {by}: {scores}; {line.valid:.0%} valid"
    what, found = ("true", line.true) if line.true else ("judged", line.judged)
    scores = " ".join(f"{stage} {_number(found[stage])}" for stage in found)
    kl = f" KL {line.task.kl:.4f}" if line.task else " nothing to learn from"
    return (
        f"step {line.step}/{steps} {line.encounter}: {what} {scores};{kl}; bank {line.bank}; utility "
        f"{_number(line.utility)}; {tokens_per_second(line):,.0f} tokens/s; {sum(line.seconds.values()):.1f} s"
    )


def tokens_per_second(line: StepLine) -> float:
    """Sampled tokens over the seconds of the step; 0 where they were not counted."""
    seconds = sum(line.seconds.values())
    return line.rollout_stats.policy_tokens / seconds if line.rollout_stats and seconds > 0 else 0.0


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


@command
def train(
    terminal: Terminal,
    config: Annotated[Path, typer.Argument(help="YAML, or the name of a config of the package, such as demo_almanac.")],
    changes: ChangesArgument = None,
    track: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help=f"Report to it as well: {training.TRACKERS}.")
    ] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="As --track tensorboard.")] = False,
    wandb: Annotated[bool, typer.Option("--wandb", help="As --track wandb.")] = False,
) -> None:
    """Train by SS-GRPO, in the almanac or on your own questions.

    Ctrl-C stops; the same command resumes from the last checkpoint.
    """
    trainer = training.read_trainer_command(config, changes or [])
    began = time.monotonic()
    with ExitStack() as closing:
        chosen = [*(track or []), *["tensorboard"] * tensorboard, *["wandb"] * wandb]
        trackers = training.open_trackers(trainer.out, chosen, closing=closing)
        with training.interruptible():
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


@command
def train_verl(
    terminal: Terminal,
    config: Annotated[str, typer.Argument(help="YAML, or the name of a config of the package.")] = "verl_rubricem_8b",
    changes: ChangesArgument = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print memory, calls, money and hours alone.")] = False,
    assume: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="Of the dry run; repeatable.")] = None,
    preflight: Annotated[bool, typer.Option("--preflight", help="List what is missing here alone.")] = False,
    no_probe: ProbeOption = False,
) -> None:
    """Train on Ray, FSDP and vLLM: the paper's recipes, or `verl_almanac_cpu` on two cores. The same command resumes."""
    chosen = {"--dry-run": dry_run, "--json": terminal.as_json, "--preflight": preflight, "--no-probe": no_probe}
    options = [name for name, is_chosen in chosen.items() if is_chosen]
    options += [word for change in assume or [] for word in ("--assume", change)]
    if "=" in config:  # a change, where no config is named
        config, changes = "verl_rubricem_8b", [config, *(changes or [])]
    raise typer.Exit(training.run_verl(["--config-name", config, *options, "--", *(changes or [])]))


def _run_watched(started: training.TrainerCommand, trackers: Sequence[training.Tracker], console: Console) -> None:
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task("steps", total=started.steps)
    new_lines = follow_log(started.out)

    def show_new() -> None:
        for line in new_lines():
            show_line(line, started.steps, console)
            bar.update(task, completed=line.step)
            for tracker in trackers:
                tracker(line)

    trainer = training.Trainer.start(started, training.trainer_environment())
    try:
        with bar:
            while trainer.is_running:
                show_new()
                time.sleep(_POLL_SECONDS)
            show_new()
    except KeyboardInterrupt as interrupt:
        trainer.stop()
        show_new()  # steps that ended before it, or while the trainer stopped
        typer.echo("\nstopped; the same command resumes from the last checkpoint.", err=True)
        raise typer.Exit(130) from interrupt
    finally:
        trainer.stop()
        trainer.finish()


@command
def watch(
    terminal: Terminal,
    run: Annotated[Path, typer.Argument(help="The folder of a run on veRL, its trainer.default_local_dir.")],
    benchmarks: Annotated[list[str], typer.Option("--eval", metavar="NAME", help="A benchmark; repeatable.")],
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[-- OPTIONS]", help="Options of `rubricem eval`, after --.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Questions of each benchmark.")] = None,
    every: Annotated[int, typer.Option(min=1, help="Evaluate steps whose number is a multiple of it.")] = 1,
    engine: Annotated[Engine, typer.Option(help="`vllm serve`, or transformers in the evaluation.")] = "vllm",
    once: Annotated[bool, typer.Option("--once", help="Evaluate what is saved, and end.")] = False,
) -> None:
    """Evaluate the checkpoints of a veRL run while it trains, into its log and its curves.

    Ctrl-C stops; the same command goes on. What is evaluated is not evaluated again.
    """
    more = [*(options or []), *(["--limit", str(limit)] if limit else [])]
    lines: list[BenchmarkLine] = []

    def report(line: BenchmarkLine | str) -> None:
        if isinstance(line, str):
            typer.echo(line, err=True)
            return
        lines.append(line)
        terminal.say(describe_line(line, 0))

    known = [find_benchmark(name).name for name in benchmarks]
    watch_run(Watch(run, known, every=every, engine=engine, options=more), report, once=once)
    terminal.close([line.model_dump(mode="json") for line in lines], {"evaluated": len(lines)}, brief=str(run))
