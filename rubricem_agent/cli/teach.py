"""`rubricem data`: write teacher data, export it to other trainers, and see what was rejected."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from rubricem_agent.build.teacher import load_chat_tokenizer, read_questions
from rubricem_agent.build.teacher import teach as run_teacher
from rubricem_agent.config.teacher import SCRIPTED, TeacherConfig, parse_teacher
from rubricem_agent.data.asking import TeacherPrompts
from rubricem_agent.data.chatml import read_samples
from rubricem_agent.data.estimate import Cost, estimate
from rubricem_agent.data.exports import export_rows
from rubricem_agent.data.generation import Trace
from rubricem_agent.data.output import SAMPLES_FILE, read_report
from rubricem_agent.data.rejection_report import RejectionReport
from rubricem_agent.data.turns import RepliesPending
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.trajectory_json import first_problem
from rubricem_env.llm.usage import CeilingReached, Ceilings

data_app = typer.Typer(help="Teacher data for fine-tuning: write, export, report.", no_args_is_help=True)

TEACHER_HELP = "scripted, gemini:MODEL, gemini-batch:MODEL, openai:MODEL@URL or directory:PATH."


@data_app.command()
def teach(
    out: Annotated[Path, typer.Option(help="Folder of the run. The same folder again goes on where it stopped.")],
    teacher: Annotated[str, typer.Option(help=TEACHER_HELP)] = SCRIPTED,
    *,
    questions: Annotated[Path | None, typer.Option(help="JSONL; the shipped almanac's by default.")] = None,
    tools: Annotated[Path | None, typer.Option(help="TOML of tool settings; offline by default.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many questions.")] = None,
    max_dollars: Annotated[float | None, typer.Option(min=0, help="Stop before more is spent.")] = None,
    ray: Annotated[int, typer.Option(min=1, help="Shards on Ray; 1 stays in this process.")] = 1,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before a teacher that costs money.")] = False,
) -> None:
    """Have a teacher write traces, and keep those that are fit to train on. Says what it will cost, and asks, first."""
    fields = {"out": out, "teacher": teacher, "questions": questions, "tools": tools, "limit": limit, "shards": ray}
    config = _config({**fields, "ceilings": Ceilings(dollars=max_dollars)})
    num_questions = _show_estimate(config)
    if parse_teacher(config.teacher).costs and not yes and not typer.confirm("Go on?"):
        return
    try:
        harvested = run_teacher(config, on_trace=_Counter(num_questions))
    except RepliesPending as pause:
        typer.echo(str(pause))
        return
    except CeilingReached as stop:
        typer.echo(f"stopped: {stop} What is written is in {out}.", err=True)
        raise typer.Exit(1) from stop
    _show_report(harvested.report)
    typer.echo(f"Samples: {out / SAMPLES_FILE}. Train on them with: python trainers/sft.py --config ...")


@data_app.command("dry-run")
def dry_run(
    teacher: Annotated[str, typer.Option(help=TEACHER_HELP)] = SCRIPTED,
    questions: Annotated[Path | None, typer.Option(help="JSONL; the shipped almanac's by default.")] = None,
    *,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many questions.")] = None,
) -> None:
    """Estimate the calls, the tokens and the money of `teach`. Nothing is sent."""
    _show_estimate(_config({"out": Path(), "teacher": teacher, "questions": questions, "limit": limit}))


@data_app.command()
def export(
    samples: Annotated[Path, typer.Argument(help="samples.jsonl of a run.")],
    to: Annotated[str, typer.Option(help="trl or llama_factory.")],
    *,
    tokenizer: Annotated[str, typer.Option(help="The student's, by folder or name.")],
    out: Annotated[Path, typer.Option(help="Folder for the rows and the recipe.")],
    max_tokens: Annotated[int, typer.Option(min=1, help="Longer samples are dropped.")] = 16_384,
) -> None:
    """Write samples as token rows with labels, and the paper's settings for that trainer."""
    exported = export_rows(
        read_samples(samples), load_chat_tokenizer(tokenizer), folder=out, trainer=to, max_tokens=max_tokens
    )
    typer.echo(f"{exported.rows} rows in {exported.folder}, {exported.dropped} dropped as too long.")


@data_app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Folder of a run.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Show how many traces were rejected, and for what."""
    found = read_report(folder)
    if as_json:
        typer.echo(found.model_dump_json())
    else:
        _show_report(found)


class _Counter:
    """Says how far a run is, on a terminal."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0

    def __call__(self, trace: Trace) -> None:
        self._done += 1
        if sys.stderr.isatty() or self._done == self._total:
            typer.echo(f"\r{self._done}/{self._total} traces", err=True, nl=self._done == self._total)


def _config(fields: dict[str, object]) -> TeacherConfig:
    try:
        return TeacherConfig.model_validate(fields, strict=False)
    except ValidationError as cause:
        raise ConfigError(f"the options are refused {first_problem(cause)}") from cause


def _show_estimate(config: TeacherConfig) -> int:
    """Say what a run will cost; returns how many questions it has."""
    spec = parse_teacher(config.teacher)
    tasks = read_questions(config).tasks
    if not spec.costs:
        typer.echo(f"{len(tasks)} questions; the scripted teacher costs nothing.")
        return len(tasks)
    found = estimate(tasks, TeacherPrompts.ours(max_rounds=config.max_rounds), model=spec.model)
    typer.echo(f"{found.questions} questions.")
    for name, cost in (("expected", found.expected), ("at most", found.at_most)):
        typer.echo(f"{name}: {_cost_text(cost)}")
    return len(tasks)


def _cost_text(cost: Cost) -> str:
    money = "price unknown" if cost.dollars is None else f"${cost.dollars:,.2f}"
    return f"{cost.calls:,} calls, {cost.input_tokens:,} tokens in, {cost.output_tokens:,} out, {money}"


def _show_report(found: RejectionReport) -> None:
    typer.echo(
        f"{found.traces} traces: {found.accepted} accepted, {found.rejected} rejected, "
        f"{found.by_paper} of them for the paper's own reasons."
    )
    if not found.reasons:
        return
    table = Table("reason", "whose", "traces", "alone", "example", box=None, pad_edge=False)
    for reason in found.reasons:
        whose = "paper" if reason.is_paper else "ours"
        table.add_row(reason.reason, whose, str(reason.named), str(reason.alone), reason.example.replace("[", "\\["))
    Console().print(table)
