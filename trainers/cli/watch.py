"""`rubricem watch`: evaluate the checkpoints of a veRL run while it trains."""

from pathlib import Path
from typing import Annotated

import typer

from rubricem_agent.cli.command import command
from rubricem_agent.cli.terminal import Terminal
from rubricem_agent.evals.suite import find_benchmark
from rubricem_records.runs.log_lines import BenchmarkLine

from ..verl_backend.watch import Engine, Watch, watch as watch_run
from .log_lines import describe_line


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
