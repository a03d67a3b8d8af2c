"""`rubricem eval` runs, reports, rescores and exports benchmarks."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from typer.core import TyperGroup

from rubricem_agent.cli.command import INCOMPLETE, command
from rubricem_agent.cli.output_files import open_out, write_out
from rubricem_agent.cli.terminal import Terminal, plain_table
from rubricem_agent.evals.costs import cost_cells
from rubricem_agent.evals.report import (
    Summary,
    paper_table,
    percent,
    print_summary,
    print_table,
    render_page,
    summarize,
)
from rubricem_agent.evals.runner import Listener, RunPhase
from rubricem_agent.evals.shown_value import shown
from rubricem_agent.evals.suite import SUITE
from rubricem_agent.wiring.eval_config import EvalConfig
from rubricem_agent.wiring.eval_plan import PlannedEvaluation, plan_run
from rubricem_agent.wiring.eval_tables import TableConfig, plan_table, within_budget
from rubricem_agent.wiring.evals import FinishedRun, run_evaluation
from rubricem_agent.wiring.evals_on_ray import run_over_ray
from rubricem_agent.wiring.inspect_log import export_inspect_log
from rubricem_agent.wiring.stored_runs import read_logs, rescore_run
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.llm.prices import describe_prices
from rubricem_env.llm.wires.chat_wire import DROPPED
from rubricem_records.evaluations.manifest import ANSWERS_FILE, VERDICTS_FILE
from rubricem_records.evaluations.names import name_of
from rubricem_records.evaluations.own_rows import OWN, lifetime
from rubricem_records.evaluations.scores import read_scores
from rubricem_records.files.atomic_files import writing
from rubricem_records.files.journal import NO_ROOM

_SHOWN_FAILURES = 5
_SHOWN_REPLY = 200
"""Characters of a reply that holds no verdict."""
_PAGE_FILE = "report.html"


class _RunByDefault(TyperGroup):
    """`rubricem eval BENCHMARK` means `rubricem eval run BENCHMARK`."""

    def resolve_command(self, ctx, args):  # type: ignore[no-untyped-def]
        named = args[0] if args else "run"
        return super().resolve_command(ctx, args if self.get_command(ctx, named) else ["run", *args])


eval_app = typer.Typer(
    cls=_RunByDefault,
    help="Run a benchmark; report runs, score them again, export them. `eval NAME` is short for `eval run NAME`.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Estimate calls and money; call no model.")]
RunArgument = Annotated[Path, typer.Argument(help="The folder of a run.")]


@eval_app.command("run")
@command
def run(
    terminal: Terminal,
    options: EvalConfig,
    dry_run: DryRunOption = False,
) -> None:
    """Answer the examples of a benchmark, have the answers judged, and print the scores with their mode.

    The same command resumes a run that was stopped. Exits with 3 where something is left to do.
    """
    planned = plan_run(options)
    _announce(planned, terminal)
    if dry_run:
        _close_dry_run(planned, terminal)
        return
    open_out(planned.config.folder)
    finished = _run(planned, terminal)
    summary = summarize([finished.scores])
    page = finished.folder / _PAGE_FILE
    with writing(page, NO_ROOM):
        page.write_text(render_page(summary), encoding="utf-8")
    _close(summary, terminal)
    if planned.config.shard == (1, 1) and not finished.scores.is_complete:
        missing = finished.scores.expected - finished.scores.answered
        if options.answers_from is not None and missing:
            terminal.warn(
                f"{options.answers_from} lacks {missing} answers. Finish that run, then run this command again."
            )
        if finished.scores.manifest.warning:
            terminal.warn(_never_answered(finished))
        raise typer.Exit(INCOMPLETE)
    if nothing := _nothing_graded(finished):
        terminal.warn(nothing)
        raise typer.Exit(1)


def _announce(planned: PlannedEvaluation, terminal: Terminal) -> None:
    """Say what is about to be measured, and which settings are without effect."""
    terminal.say(planned.headline)
    for note in planned.notes():
        terminal.warn(note)


def _never_answered(finished: FinishedRun) -> str:
    """Says that the numbers are of empty answers, and where the policy's text is."""
    scores = finished.scores
    return f"{scores.empty_answers}: {scores.manifest.warning}. Its text is in {finished.folder / ANSWERS_FILE}."


def _nothing_graded(finished: FinishedRun) -> str:
    """Says of a finished run that no reply of a judge is a grade, with one of its replies; empty where one is."""
    verdicts = read_logs(finished.folder).verdicts.records
    for judge in finished.scores.judges:
        is_read = judge.unreadable < judge.replies or not judge.replies
        if (judge.graded and is_read) or not finished.scores.answered:
            continue
        reply = next((record.replies[-1] for record in verdicts if record.judge == judge.judge and record.replies), "")
        why = ", ".join(f"{count} {reason}" for reason, count in judge.excluded.items())
        said = f" A reply of it: {shown(reply, limit=_SHOWN_REPLY)!r}." if reply else ""
        return (
            f"{finished.folder}: no answer got a grade by {judge.judge}{f' ({why})' if why else ''}, so there is no "
            f"number.{said} All replies are in {VERDICTS_FILE}; name another judge with --judge and another --out."
        )
    return ""


def _run(planned: PlannedEvaluation, terminal: Terminal) -> FinishedRun:
    try:
        if planned.config.ray:
            finished = run_over_ray(planned.config, planned.config.ray)
        else:
            with _progress(planned, terminal) as listener:
                finished = asyncio.run(run_evaluation(planned, listener=listener))
    except KeyboardInterrupt:
        terminal.warn(f"interrupted; the results so far are in {planned.config.folder}; the same command resumes.")
        raise typer.Exit(130) from None
    if not terminal.is_silent:
        _say_counts(finished, terminal)
    _warn_of_failures(finished, terminal)
    return finished


@contextmanager
def _progress(planned: PlannedEvaluation, terminal: Terminal) -> Iterator[Listener]:
    """Two bars, for answers and verdicts, which begin at what is done already."""
    total = len(planned.manifest.inputs.ids) * planned.config.epochs
    with terminal.progress() as bars:
        stages: tuple[RunPhase, ...] = ("answers", "verdicts")
        tasks = {stage: bars.add_task(stage, total=total) for stage in stages}
        failed = dict.fromkeys(tasks, 0)

        def count(phase: RunPhase, failure: str) -> None:
            failed[phase] += bool(failure)
            failures = f", {failed[phase]} failed" if failed[phase] else ""
            bars.update(tasks[phase], advance=1, description=f"{phase}{failures}")

        yield count


def _close_dry_run(planned: PlannedEvaluation, terminal: Terminal) -> None:
    """Print calls and money, stage by stage."""
    estimates = planned.estimate()
    inputs = planned.manifest.inputs
    benchmark = planned.manifest.benchmark
    mode = planned.manifest.label
    count = len(inputs.ids)
    rows = ((cost.stage, escape(cost.model), *cost_cells(cost)) for cost in estimates)
    table = plain_table("stage", "model", "calls", "tokens read", "tokens written", "dollars", rows=rows)
    prices = describe_prices((cost.model for cost in estimates), planned.prices)
    terminal.show(table, *map(escape, prices))
    document = {
        "benchmark": benchmark,
        "mode": mode,
        "search": planned.manifest.agent.search,
        "examples": count,
        "prices": prices,
        "stages": [
            {
                "stage": cost.stage,
                "model": cost.model,
                "dollars": cost.dollars if cost.is_priced else None,
                **cost.usage.model_dump(mode="json"),
            }
            for cost in estimates
        ],
    }
    dollars = f"{sum(cost.dollars for cost in estimates):.2f}"
    unpriced = "".join(f" No price is known of {cost.model}." for cost in estimates if not cost.is_priced)
    terminal.close(document, f"no model was called. Known prices add up to ${dollars}.{unpriced}", brief=dollars)


def hint_of(failures: Sequence[str]) -> str:
    """What may help against failures whose cause is known; empty where none is."""
    if not any(DROPPED in failure for failure in failures):
        return ""
    return (
        "A server that runs one request at a time, such as llama-cpp-python's, drops the running stream when another "
        "request comes: try --concurrency 1, and --stage answers first where it is the judge's server too."
    )


def _say_counts(finished: FinishedRun, terminal: Terminal) -> None:
    """Say what this start has done, and apart from it what was done before."""
    runner = finished.runner
    answered, judged = runner.answered_before, runner.judged_before
    before = f"; {answered} answered and {judged} judged before this start" if answered or judged else ""
    terminal.warn(f"{finished.folder}: {runner.answered} answered and {runner.judged} judged now{before}")


def _warn_of_failures(finished: FinishedRun, terminal: Terminal) -> None:
    runner = finished.runner
    for failure in runner.failures[:_SHOWN_FAILURES]:
        terminal.warn(f"  {failure}")
    if len(runner.failures) > _SHOWN_FAILURES:
        terminal.warn(f"  and {len(runner.failures) - _SHOWN_FAILURES} more")
    if hint := hint_of(runner.failures):
        terminal.warn(hint)
    if runner.stopped:
        way_out = "" if "--budget" in runner.stopped else " Run the same command with a larger --budget to resume."
        terminal.warn(f"stopped: {runner.stopped}{way_out}")
    elif runner.failures:
        terminal.warn("Run the same command to try these again.")


@eval_app.command("table1")
@command
def table1(terminal: Terminal, options: TableConfig, dry_run: DryRunOption = False) -> None:
    """Run the four long-form benchmarks of the paper's table 1 on its subsets, and print its rows with yours.

    One budget holds for all. The same command resumes. Exits with 3 where something is left to do.
    """
    _run_table(1, options, terminal, dry_run=dry_run)


@eval_app.command("table2")
@command
def table2(terminal: Terminal, options: TableConfig, dry_run: DryRunOption = False) -> None:
    """Run the four short-form benchmarks of the paper's table 2 on its subsets, and print its rows with yours.

    One budget holds for all. The same command resumes. Exits with 3 where something is left to do.
    """
    _run_table(2, options, terminal, dry_run=dry_run)


def _run_table(number: int, options: TableConfig, terminal: Terminal, *, dry_run: bool) -> None:
    plans = plan_table(options, number)
    for planned in plans:
        _announce(planned, terminal)
    if dry_run:
        _close_table_dry_run(plans, terminal)
        return
    runs = []
    for planned in plans:
        affordable = within_budget(planned, plans)
        if affordable is None:
            terminal.warn(
                f"the budget of ${options.budget:g} is used up before {planned.manifest.title}: run the same command "
                "with a larger --budget to resume."
            )
            break
        open_out(affordable.config.folder)
        runs.append(_run(affordable, terminal))
    if not runs:
        raise typer.Exit(INCOMPLETE)
    every = [finished.scores for finished in runs]
    summary = summarize(every)
    table = paper_table(every, number)
    print_table(table, terminal.console)
    (own,) = (row for row in table.rows if row[0].startswith(OWN))
    document = {"table": table._asdict(), **summary.model_dump(mode="json", exclude={"published"})}
    terminal.close(document, brief="\t".join(own))
    if len(runs) < len(plans) or not all(scores.is_complete for scores in every):
        raise typer.Exit(INCOMPLETE)
    if ungraded := list(filter(None, map(_nothing_graded, runs))):
        for nothing in ungraded:
            terminal.warn(nothing)
        raise typer.Exit(1)


def _close_table_dry_run(plans: Sequence[PlannedEvaluation], terminal: Terminal) -> None:
    """Print calls and money of each run of a table, and the sum."""
    costs = [(planned.manifest.benchmark, cost) for planned in plans for cost in planned.estimate()]
    rows = ((name, cost.stage, escape(cost.model), *cost_cells(cost)) for name, cost in costs)
    headings = ("benchmark", "stage", "model", "calls", "tokens read", "tokens written", "dollars")
    terminal.show(plain_table(*headings, rows=rows))
    dollars = f"{sum(cost.dollars for _, cost in costs):.2f}"
    unpriced = dict.fromkeys(cost.model for _, cost in costs if not cost.is_priced)
    document = {
        "runs": [
            {"benchmark": planned.manifest.benchmark, "mode": planned.manifest.label, "headline": planned.headline}
            for planned in plans
        ],
        "dollars": float(dollars),
        "without_a_price": list(unpriced),
    }
    named = "".join(f" No price is known of {model}." for model in unpriced)
    terminal.close(document, f"no model was called. Known prices add up to ${dollars}.{named}", brief=dollars)


@eval_app.command()
@command
def report(
    terminal: Terminal,
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.")],
    html_file: Annotated[Path | None, typer.Option("--html", help="Write one self-contained page.")] = None,
    across_judges: Annotated[
        bool, typer.Option("--across-judges", help="Compare runs that different judges have scored.")
    ] = False,
) -> None:
    """Show runs beside the paper's rows; two runs of one benchmark are compared on the examples they share."""
    with terminal.working("comparing"):
        summary = summarize([read_scores(folder) for folder in runs], across_judges=across_judges)
    if html_file is not None:
        write_out(html_file, render_page(summary), option="--html")
    _close(summary, terminal)


@eval_app.command()
@command
def rescore(
    terminal: Terminal,
    folder: RunArgument,
    data: Annotated[str, typer.Option(help="The current path of the data file.")] = "",
) -> None:
    """Compute all scores of a run again from its logs, without a judge and without a network."""
    before = None
    with suppress(FileFormatError):  # there are none after an interrupt, or none that can be read
        before = read_scores(folder)
    with terminal.working("scoring"):
        after = rescore_run(folder, data)
    _close(summarize([after]), terminal)
    if before is None:
        terminal.say(f"the scores are in {folder} now; there were none before.")
    else:
        same = before.judges == after.judges
        terminal.say(f"the scores {'are the same as before' if same else 'differ from those that were stored'}.")


@eval_app.command("list")
@command
def list_benchmarks(terminal: Terminal) -> None:
    """List the benchmarks, their modes and judges, and where their files are."""
    benchmarks = []
    rows = []
    for entry in SUITE.values():
        rules = [rules for rules in (entry.official, entry.drtulu, entry.paper, entry.leaderboard) if rules]
        judges = list(dict.fromkeys(lifetime(mode_rules.judge) or "no judge needed" for mode_rules in rules))
        rows += [
            (entry.name, entry.answer_format.value, "; in mode drtulu ".join(judges)),
            ("", "", f"ids: {entry.ids}"),
            ("", "", entry.hub),
        ]
        benchmarks.append(
            {
                "name": entry.name,
                "form": entry.answer_format.value,
                "judges": {mode_rules.mode: mode_rules.judge for mode_rules in rules},
                "file": entry.hub,
                "ids": entry.ids,
            }
        )
    table = plain_table("name", "answers", "judge; ids; file", rows=([escape(cell) for cell in row] for row in rows))
    terminal.show(table)
    terminal.close(benchmarks, brief="\n".join(SUITE))


@eval_app.command()
@command
def export(
    terminal: Terminal,
    folder: RunArgument,
    out: Annotated[Path, typer.Option(help="A file that ends in .eval (or .json).")],
) -> None:
    """Write a run as a log that `inspect view` opens; needs the extra `eval`."""
    open_out(out.parent)
    with writing(out, "Choose another file with --out."):
        export_inspect_log(folder, out)
    terminal.close({"log": str(out)}, f"wrote {out}", brief=str(out))


def _close(summary: Summary, terminal: Terminal) -> None:
    print_summary(summary, terminal.console)
    rows = (
        f"{percent(judge.score)}\t{name_of(run)}, {run.manifest.label}, {judge.judge}"
        for run in summary.runs
        for judge in run.judges
    )
    terminal.close(summary, brief="\n".join(rows))
