"""`rubricem eval`: run a benchmark, report runs, score them again, export them.

The options of `rubricem eval run`, as one value.

How far a run is, on the error stream.

What `rubricem eval` prints.

`rubricem parity FILE...`: our scorers against recorded official verdicts.
"""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from rubricem_agent.build.eval_plan import PlannedEvaluation, plan_run, read_scores, rescore_run, stored_scores
from rubricem_agent.build.evals import FinishedRun, export_inspect_log, run_evaluation, run_over_ray
from rubricem_agent.cli.terminal import JsonOption, QuietOption, Terminal, as_command, open_out, write_out
from rubricem_agent.config import EvalConfig, Style
from rubricem_agent.evals.answers import Reuse
from rubricem_agent.evals.base import EvaluationMode
from rubricem_agent.evals.manifest import SubsetName
from rubricem_agent.evals.parity import AGREED, DISAGREED, UNREADABLE, FileParity, replay
from rubricem_agent.evals.records import NO_PRICE
from rubricem_agent.evals.report import Summary, name_of, percent, print_summary, render_page, summarize
from rubricem_agent.evals.runner import Limits, Listener, RunPhase
from rubricem_agent.evals.suite import SUITE
from rubricem_env.domain.errors import ConfigError, FileFormatError

_SHARD = re.compile(r"(\d+)/(\d+)")


@dataclass(frozen=True)
class RunOptions:
    """What a user may say about a run. Field names are option names."""

    benchmark: Annotated[str, typer.Argument(help="Its name; `rubricem eval list` shows them.")]
    data: Annotated[str, typer.Option(help="The official file, or hf:OWNER/NAME/FILE@REVISION.")] = ""
    criteria: Annotated[Path | None, typer.Option(help="drb: the criteria file.")] = None
    references: Annotated[Path | None, typer.Option(help="drb: the reference articles.")] = None
    any_version: Annotated[bool, typer.Option("--any-version", help="Let other hashes and row counts through.")] = False
    fact: Annotated[bool, typer.Option("--fact", help="drb: check citations as well.")] = False
    mode: Annotated[EvaluationMode, typer.Option(help="Whose protocol.")] = EvaluationMode.OFFICIAL
    policy: Annotated[
        str,
        typer.Option(help="scripted, openai:MODEL@URL, gemini:MODEL, local:PATH, file:ANSWERS.jsonl, or expert."),
    ] = "scripted"
    judge: Annotated[list[str] | None, typer.Option(help="gemini:MODEL or openai:MODEL@URL; repeat for agreement.")] = (
        None
    )
    limit: Annotated[int | None, typer.Option(min=1, help="So many examples, by the mode's published rule.")] = None
    subset: Annotated[SubsetName, typer.Option(help="ablation: the same 100 in every run.")] = SubsetName.MODE
    ids: Annotated[Path | None, typer.Option(help="A file with one example id a line.")] = None
    epochs: Annotated[int, typer.Option(min=1, help="Repeats of every example; the variance is split.")] = 1
    stage: Annotated[RunPhase, typer.Option(help="Only answers, only verdicts, or all.")] = RunPhase.ALL
    style: Annotated[Style, typer.Option(help="The scaffold, or plain think and act.")] = Style.SCAFFOLD
    reuse: Annotated[Reuse, typer.Option(help="Reflections put before the question.")] = Reuse.NONE
    bank: Annotated[Path | None, typer.Option(help="The bank that --reuse cross retrieves from.")] = None
    attempts: Annotated[int, typer.Option(min=1, help="Episodes in a row; the last answer counts.")] = 1
    tools: Annotated[Path | None, typer.Option(help="Settings of the search tools; without, offline.")] = None
    seen: Annotated[
        list[Path] | None, typer.Option(help="Training data or a bank that the examples must not be in; repeatable.")
    ] = None
    drop_seen: Annotated[bool, typer.Option("--drop-seen", help="Leave such examples out.")] = False
    out: Annotated[Path | None, typer.Option(help="The run's folder; the same one resumes.")] = None
    answers_from: Annotated[
        Path | None, typer.Option(help="Judge the answers of that run, its examples and epochs, and answer nothing.")
    ] = None
    budget: Annotated[
        float | None, typer.Option(min=0.01, help="Dollars of models with a known price, over all resumes; then stop.")
    ] = None
    concurrency: Annotated[int, typer.Option(min=1, help="Episodes at once.")] = 16
    judge_concurrency: Annotated[int, typer.Option(min=1, help="Judge calls at once.")] = 64
    search_concurrency: Annotated[int, typer.Option(min=1, help="Searches at once.")] = 16
    seed: Annotated[int, typer.Option(min=0, help="Of the policy's draws and the bootstrap.")] = 0
    shard: Annotated[str, typer.Option(help="Run part I of N: I/N.")] = "1/1"
    ray: Annotated[int, typer.Option(min=0, help="Run so many parts over a Ray cluster.")] = 0
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count calls and money, ask nothing.")] = False
    as_json: JsonOption = False
    quiet: QuietOption = False

    def config(self) -> EvalConfig:
        """The settings that the options mean.

        Raises:
            ConfigError: --shard is not I/N.
        """
        part = _SHARD.fullmatch(self.shard)
        if part is None:
            raise ConfigError(f"--shard is {self.shard!r}; write the part and their number, such as 2/8.")
        shared = {
            name: getattr(self, name) for name in EvalConfig.model_fields.keys() & self.__dataclass_fields__.keys()
        }
        limits = Limits(policy=self.concurrency, judge=self.judge_concurrency, search=self.search_concurrency)
        return EvalConfig(
            **{
                **shared,
                "judges": tuple(self.judge or ()),
                "seen": tuple(self.seen or ()),
                "limits": limits,
                "shard": (int(part[1]), int(part[2])),
            }
        )


@contextmanager
def watch(planned: PlannedEvaluation, terminal: Terminal) -> Iterator[Listener]:
    """Two bars, answers and verdicts; what was there before a resume does not count."""
    total = len(planned.manifest.inputs.ids) * planned.config.epochs
    with terminal.progress() as progress:
        bars = {stage: progress.add_task(stage.value, total=total) for stage in (RunPhase.ANSWERS, RunPhase.VERDICTS)}
        failed = dict.fromkeys(bars, 0)

        def note(phase: RunPhase, failure: str) -> None:
            failed[phase] += bool(failure)
            text = f"{phase.value}, {failed[phase]} failed" if failed[phase] else phase.value
            progress.update(bars[phase], advance=1, description=text)

        yield note


SHOWN_FAILURES = 5


def brief_scores(summary: Summary) -> str:
    """A line a run and judge: its score times 100, and its name."""
    return "\n".join(
        f"{percent(judge.score)}\t{name_of(run)}, {run.manifest.label}, {judge.judge}"
        for run in summary.runs
        for judge in run.judges
    )


def describe_estimates(planned: PlannedEvaluation) -> dict[str, object]:
    """A dry run as JSON values."""
    return {
        "benchmark": planned.manifest.benchmark,
        "mode": planned.manifest.label,
        "examples": len(planned.manifest.inputs.ids),
        "stages": [
            {
                "stage": cost.stage,
                "model": cost.model,
                "dollars": cost.dollars if cost.is_priced else None,
                **cost.usage.model_dump(mode="json"),
            }
            for cost in planned.estimate()
        ],
    }


def print_estimates(planned: PlannedEvaluation, console: Console) -> None:
    """A dry run: calls and money, stage by stage."""
    inputs = planned.manifest.inputs
    table = Table(
        title=Text(
            f"{planned.manifest.benchmark}, {planned.manifest.label}, {len(inputs.ids)} examples ({inputs.subset})"
        )
    )
    for heading in ("stage", "model", "calls", "tokens read", "tokens written", "dollars"):
        table.add_column(heading, justify="left" if heading in ("stage", "model") else "right")
    estimates = planned.estimate()
    for one in estimates:
        dollars = f"{one.dollars:.2f}" if one.is_priced else NO_PRICE
        usage = one.usage
        table.add_row(
            one.stage,
            Text(one.model),
            f"{usage.calls:,}",
            f"{usage.input_tokens:,}",
            f"{usage.output_tokens:,}",
            dollars,
        )
    console.print(table)


def known_dollars(planned: PlannedEvaluation) -> float:
    """What the known prices of a dry run add up to."""
    return sum(cost.dollars for cost in planned.estimate())


def print_outcome(finished: FinishedRun, console: Console) -> None:
    """What was done now, what failed, and how to go on."""
    outcome = finished.outcome
    console.print(Text(f"{finished.folder}: {outcome.answered} answered and {outcome.judged} judged now"))
    for failure in outcome.failures[:SHOWN_FAILURES]:
        console.print(Text(f"  {failure}"))
    if len(outcome.failures) > SHOWN_FAILURES:
        console.print(f"  and {len(outcome.failures) - SHOWN_FAILURES} more")
    if outcome.stopped:
        console.print(Text(f"stopped: {outcome.stopped}"))
    elif outcome.failures:
        console.print("Run the same command to try these again.")


def print_suite(console: Console) -> None:
    """Every benchmark with its judges and its files."""
    table = Table(title="Benchmarks", show_lines=True)
    # What one types and what one copies: neither is broken before the narrowest of screens.
    table.add_column("name", no_wrap=True)
    table.add_column("answers", no_wrap=True)
    table.add_column("judge; ids; file", overflow="fold")
    for entry in SUITE.values():
        judge = entry.official.judge or "no judge needed"
        other = entry.drtulu.judge or "no judge needed" if entry.drtulu is not None else None
        judges = judge if other in (None, judge) else f"{judge}; in mode drtulu {other}"
        table.add_row(entry.name, entry.answer_format.value, Text(f"{judges}\nids: {entry.ids}\n{entry.hub}"))
    console.print(table)


Replayed = FileParity | FileFormatError
"""What came of a file: its parity, or why it cannot be read."""


def parity(
    files: Annotated[list[Path], typer.Argument(help="Files of recorded verdicts, one JSON object per line.")],
    *,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Replay recorded verdicts; print agreed/total per file and every disagreement.

    Exits with 0 where all agree, 1 where any differs, 2 where a file cannot be read; the others are still replayed.
    """
    terminal = Terminal(as_json=as_json, is_quiet=quiet)
    found: dict[str, Replayed] = {}
    with terminal.bar("replaying", len(files)) as on_file:
        for file in files:
            found[str(file)] = _replay(file)
            on_file(1)
    lines = [line for file, replayed in found.items() for line in _lines(file, replayed)]
    terminal.close(
        [{"file": file, **_describe(replayed)} for file, replayed in found.items()],
        "\n".join(lines),
        brief="\n".join(line for line in lines if line.startswith(" ") or "cannot be read" in line),
    )
    raise typer.Exit(max(_code(replayed) for replayed in found.values()))


def _replay(file: Path) -> Replayed:
    try:
        return replay(file)
    except FileFormatError as unreadable:
        return unreadable


def _lines(file: str, replayed: Replayed) -> list[str]:
    if isinstance(replayed, FileFormatError):
        return [str(replayed)]
    differing = [f"  {case_id}: {difference}" for case_id, found in replayed.disagreements for difference in found]
    return [f"{file}: {replayed.agreed}/{replayed.total}", *differing]


def _describe(replayed: Replayed) -> dict[str, object]:
    if isinstance(replayed, FileFormatError):
        return {"unreadable": str(replayed)}
    return {
        **replayed._asdict(),
        "disagreements": [{"id": case_id, "differences": found} for case_id, found in replayed.disagreements],
    }


def _code(replayed: Replayed) -> int:
    if isinstance(replayed, FileFormatError):
        return UNREADABLE
    return DISAGREED if replayed.disagreements else AGREED


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


def _run(planned: PlannedEvaluation, terminal: Terminal, *, parts: int) -> FinishedRun:
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
            "judges": {rules.mode.value: rules.judge for rules in (entry.official, entry.drtulu) if rules},
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
