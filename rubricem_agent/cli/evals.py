"""`rubricem eval`: run a benchmark, report runs, score them again, export them."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from typer.core import TyperGroup

from rubricem_agent.build.eval_plan import PlannedRun, plan_run
from rubricem_agent.build.eval_scores import read_scores, rescore_run, stored_scores
from rubricem_agent.build.eval_shards import run_over_ray
from rubricem_agent.build.evals import FinishedRun, run_evaluation
from rubricem_agent.build.inspect_log import export_inspect_log
from rubricem_agent.cli.eval_options import RunOptions
from rubricem_agent.cli.eval_progress import watch
from rubricem_agent.cli.eval_tables import (
    brief_scores,
    describe_estimates,
    known_dollars,
    print_estimates,
    print_outcome,
    print_suite,
)
from rubricem_agent.cli.options import as_command
from rubricem_agent.cli.out_file import write_out
from rubricem_agent.cli.out_folder import open_out
from rubricem_agent.cli.terminal import JsonOption, QuietOption, Terminal
from rubricem_agent.evals.report.page import render_page
from rubricem_agent.evals.report.summary import Summary, summarize
from rubricem_agent.evals.report.terminal import print_summary
from rubricem_agent.evals.rules import DRTULU, OFFICIAL
from rubricem_agent.evals.suite import SUITE

INCOMPLETE = 3
"""The exit code of a run that is to be resumed."""
INTERRUPTED = 130
"""As a shell counts a command that Ctrl-C has ended."""

PAGE_FILE = "report.html"


class _RunByDefault(TyperGroup):
    """`rubricem eval BENCHMARK` means `rubricem eval run BENCHMARK`."""

    def resolve_command(self, ctx, args):  # type: ignore[no-untyped-def]
        named = args[0] if args else "run"
        return super().resolve_command(ctx, args if self.get_command(ctx, named) else ["run", *args])


eval_app = typer.Typer(
    name="eval",
    cls=_RunByDefault,
    help="Run a benchmark; report runs, score them again, export them. `eval NAME` is short for `eval run NAME`.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Runs = Annotated[list[Path], typer.Argument(help="Folders of runs.")]
Run = Annotated[Path, typer.Argument(help="The folder of a run.")]


@eval_app.command("run")
@as_command(RunOptions)
def run(options: RunOptions) -> None:
    """Answer the examples of a benchmark, have the answers judged, and print the numbers with their mode.

    The same command resumes a run that was stopped. Exits with 3 where something is left to do.
    """
    terminal = Terminal(as_json=options.as_json, is_quiet=options.quiet)
    planned = plan_run(options.config())
    for note in planned.notes():
        terminal.warn(note)
    if options.dry_run:
        dollars = f"{known_dollars(planned):.2f}"
        print_estimates(planned, terminal.console)
        unpriced = "".join(f" No price is known of {model}." for model in planned.asked.unpriced)
        told = f"nothing was asked. Known prices add up to ${dollars}.{unpriced}"
        terminal.close(describe_estimates(planned), told, brief=dollars)
        return
    open_out(planned.config.folder)
    finished = _run(planned, terminal, parts=options.ray)
    print_outcome(finished, Console(stderr=True, quiet=terminal.is_silent))
    summary = summarize([finished.scores])
    (finished.folder / PAGE_FILE).write_text(render_page(summary), encoding="utf-8")
    _close(summary, terminal)
    is_whole = planned.config.shard == (1, 1)
    if is_whole and not finished.scores.is_complete:
        missing = finished.scores.expected - finished.scores.answered
        if options.answers_from is not None and missing:
            terminal.warn(
                f"{options.answers_from} lacks {missing} answers. Finish that run, then run this command again."
            )
        raise typer.Exit(INCOMPLETE)


def _run(planned: PlannedRun, terminal: Terminal, *, parts: int) -> FinishedRun:
    try:
        if parts:
            return run_over_ray(planned.config, parts)
        with watch(planned, terminal) as listener:
            return asyncio.run(run_evaluation(planned, listener=listener))
    except KeyboardInterrupt:
        terminal.warn(f"interrupted; what was done is in {planned.config.folder}, and the same command goes on.")
        raise typer.Exit(INTERRUPTED) from None


@eval_app.command()
def report(
    runs: Runs,
    *,
    html_file: Annotated[Path | None, typer.Option("--html", help="Write one page that needs nothing else.")] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show runs beside the paper's rows; two runs of one benchmark are compared on the examples they share."""
    terminal = Terminal(as_json=as_json, is_quiet=quiet)
    with terminal.working("comparing"):
        summary = summarize([read_scores(folder) for folder in runs])
    if html_file is not None:
        write_out(html_file, render_page(summary), option="--html")
    _close(summary, terminal)


@eval_app.command()
def rescore(
    folder: Run,
    data: Annotated[str, typer.Option(help="Where the data file lies now.")] = "",
    *,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compute every number of a run anew from its logs, without a judge and without a network."""
    terminal = Terminal(as_json=as_json, is_quiet=quiet)
    before = stored_scores(folder)
    with terminal.working("scoring"):
        after = rescore_run(folder, data)
    _close(summarize([after]), terminal)
    if before is None:
        terminal.say(f"the numbers are in {folder} now; there were none before.")
    else:
        same = before.judges == after.judges
        terminal.say(f"the numbers {'are the same as before' if same else 'differ from those that were stored'}.")


@eval_app.command("list")
def list_benchmarks(*, as_json: JsonOption = False, quiet: QuietOption = False) -> None:
    """The benchmarks, their modes and judges, and where their files are."""
    terminal = Terminal(as_json=as_json, is_quiet=quiet)
    print_suite(terminal.console)
    benchmarks = [
        {
            "name": entry.name,
            "form": entry.answer_format.value,
            "judges": {
                rules.mode.value: rules.judge for rules in (OFFICIAL[entry.name], DRTULU.get(entry.name)) if rules
            },
            "file": entry.hub,
            "ids": entry.ids,
        }
        for entry in SUITE.values()
    ]
    terminal.close(benchmarks, brief="\n".join(SUITE))


@eval_app.command()
def export(
    folder: Run,
    out: Annotated[Path, typer.Option(help="A file that ends in .eval (or .json).")],
    *,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write a run as a log that `inspect view` opens; needs the extra `eval`."""
    open_out(out.parent)
    export_inspect_log(folder, out)
    Terminal(as_json=as_json, is_quiet=quiet).close({"log": str(out)}, f"wrote {out}", brief=str(out))


def _close(summary: Summary, terminal: Terminal) -> None:
    print_summary(summary, terminal.console)
    terminal.close(summary, brief=brief_scores(summary))
