"""`rubricem data`: write teacher data, export it to other trainers, and see what was rejected.

`rubricem data prepare`: questions with rubrics, from a file or the hub, made into what RL trains on.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from pydantic import ValidationError

from rubricem_agent.build.data import load_chat_tokenizer, prepare as prepare_set, read_questions, teach as run_teacher
from rubricem_agent.cli.terminal import JsonOption, QuietOption, Terminal, as_command, inert, open_out, plain_table
from rubricem_agent.config import SCRIPTED, TeacherConfig, parse_teacher
from rubricem_agent.data.chatml import export_rows, read_samples
from rubricem_agent.data.filter import SAMPLES_FILE, RejectionReport, read_report
from rubricem_agent.data.generate import RepliesPending
from rubricem_agent.data.prepare import MAX_QUESTION_TOKENS, PreparedSet
from rubricem_agent.data.teacher import TeacherPrompts, TraceCost, estimate
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.trajectory import first_problem
from rubricem_env.llm.usage import SpendLimitReached, SpendLimits

data_app = typer.Typer(help="Teacher data for fine-tuning: write, export, report.", no_args_is_help=True)

TEACHER_HELP = "scripted, gemini:MODEL, gemini-batch:MODEL, openai:MODEL@URL or directory:PATH."


@dataclass(frozen=True)
class TeachOptions:
    """What a user may say about a teacher's run. Field names are option names."""

    out: Annotated[Path, typer.Option(help="Folder of the run. The same folder again goes on where it stopped.")]
    teacher: Annotated[str, typer.Option(help=TEACHER_HELP)] = SCRIPTED
    questions: Annotated[Path | None, typer.Option(help="JSONL; the shipped almanac's by default.")] = None
    tools: Annotated[Path | None, typer.Option(help="TOML of tool settings; offline by default.")] = None
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many questions.")] = None
    max_dollars: Annotated[float | None, typer.Option(min=0, help="Stop before more is spent.")] = None
    ray: Annotated[int, typer.Option(min=1, help="Shards on Ray; 1 stays in this process.")] = 1
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before a teacher that costs money.")] = False
    as_json: JsonOption = False
    quiet: QuietOption = False

    def config(self) -> TeacherConfig:
        """The settings that the options mean.

        Raises:
            ConfigError: they do not.
        """
        named = {name: getattr(self, name) for name in ("out", "teacher", "questions", "tools", "limit")}
        return _config({**named, "shards": self.ray, "ceilings": SpendLimits(dollars=self.max_dollars)})


@data_app.command()
@as_command(TeachOptions)
def teach(options: TeachOptions) -> None:
    """Have a teacher write traces, and keep those that are fit to train on. Says what it will cost, and asks, first."""
    config = options.config()
    terminal = Terminal(as_json=options.as_json, is_quiet=options.quiet)
    expected = _estimate(config)
    terminal.say(expected.text)
    # On the error stream: the question is no part of the result.
    if parse_teacher(config.teacher).costs and not options.yes and not typer.confirm("Go on?", err=True):
        return
    open_out(options.out)
    try:
        with terminal.bar("traces", expected.questions) as on_trace:
            harvested = run_teacher(config, on_trace=lambda _: on_trace(1))
    except RepliesPending as pause:
        terminal.close({"waiting": str(pause)}, str(pause), brief=str(pause))
        return
    except SpendLimitReached as stop:
        terminal.warn(f"stopped: {stop} What is written is in {options.out}.")
        raise typer.Exit(1) from stop
    samples = str(options.out / SAMPLES_FILE)
    _show_report(harvested.report, terminal)
    terminal.close(
        {"samples": samples, **harvested.report.model_dump(mode="json")},
        f"Samples: {samples}. Train on them with: python trainers/sft.py --config ...",
        brief=samples,
    )


@data_app.command("dry-run")
def dry_run(
    teacher: Annotated[str, typer.Option(help=TEACHER_HELP)] = SCRIPTED,
    questions: Annotated[Path | None, typer.Option(help="JSONL; the shipped almanac's by default.")] = None,
    *,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many questions.")] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Estimate the calls, the tokens and the money of `teach`. Nothing is sent."""
    found = _estimate(_config({"out": Path(), "teacher": teacher, "questions": questions, "limit": limit}))
    Terminal(as_json=as_json, is_quiet=quiet).close(
        {
            "questions": found.questions,
            **{name: None if cost is None else cost._asdict() for name, cost in found.costs.items()},
        },
        found.text,
        brief=found.text.splitlines()[-1],
    )


@data_app.command()
def export(
    samples: Annotated[Path, typer.Argument(help="samples.jsonl of a run.")],
    to: Annotated[str, typer.Option(help="trl or llama_factory.")],
    *,
    tokenizer: Annotated[str, typer.Option(help="The student's, by folder or name.")],
    out: Annotated[Path, typer.Option(help="Folder for the rows and the recipe.")],
    max_tokens: Annotated[int, typer.Option(min=1, help="Longer samples are dropped.")] = 16_384,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write samples as token rows with labels, and the paper's settings for that trainer."""
    terminal = Terminal(as_json=as_json, is_quiet=quiet)
    with terminal.working("writing rows"):
        exported = export_rows(
            read_samples(samples), load_chat_tokenizer(tokenizer), folder=out, trainer=to, max_tokens=max_tokens
        )
    terminal.close(
        {"folder": str(exported.folder), "rows": exported.rows, "dropped": exported.dropped},
        f"{exported.rows} rows in {exported.folder}, {exported.dropped} dropped as too long.",
        brief=str(exported.folder),
    )


@data_app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Folder of a run.")],
    *,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show how many traces were rejected, and for what."""
    terminal = Terminal(as_json=as_json, is_quiet=quiet)
    found = read_report(folder)
    _show_report(found, terminal)
    terminal.close(found, brief=f"{found.accepted}/{found.traces}")


class _Estimate(NamedTuple):
    """What a run will cost."""

    questions: int
    text: str
    costs: dict[str, TraceCost | None]
    """None where nothing is paid for."""


def _config(fields: dict[str, object]) -> TeacherConfig:
    try:
        return TeacherConfig.model_validate(fields, strict=False)
    except ValidationError as cause:
        raise ConfigError(f"the options are refused {first_problem(cause)}") from cause


def _estimate(config: TeacherConfig) -> _Estimate:
    spec = parse_teacher(config.teacher)
    tasks = read_questions(config).tasks
    if not spec.costs:
        said = f"{len(tasks)} questions; the scripted teacher costs nothing."
        return _Estimate(len(tasks), said, {"expected": None, "at most": None})
    found = estimate(tasks, TeacherPrompts.ours(max_rounds=config.max_rounds), model=spec.model)
    costs: dict[str, TraceCost | None] = {"expected": found.expected, "at most": found.at_most}
    lines = (f"{name}: {_cost_text(cost)}" for name, cost in costs.items() if cost is not None)
    return _Estimate(len(tasks), "\n".join([f"{found.questions} questions.", *lines]), costs)


def _cost_text(cost: TraceCost) -> str:
    money = "price unknown" if cost.dollars is None else f"${cost.dollars:,.2f}"
    return f"{cost.calls:,} calls, {cost.input_tokens:,} tokens in, {cost.output_tokens:,} out, {money}"


def _show_report(found: RejectionReport, terminal: Terminal) -> None:
    terminal.say(
        f"{found.traces} traces: {found.accepted} accepted, {found.rejected} rejected, "
        f"{found.by_paper} of them for the paper's own reasons."
    )
    if not found.reasons:
        return
    table = plain_table("reason", "whose", "traces", "alone", "example")
    for reason in found.reasons:
        whose = "paper" if reason.is_paper else "ours"
        table.add_row(reason.reason, whose, str(reason.named), str(reason.alone), inert(reason.example))
    terminal.show(table)


_SHOWN = 8


def prepare(
    source: Annotated[
        str,
        typer.Argument(
            help="A JSONL, JSON or parquet file, or hf:OWNER/NAME/FILE@REVISION on the hub; its last two parts may be left out."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write, one question a line.")],
    *,
    evals: Annotated[
        list[str] | None,
        typer.Option(help="JSONL of questions that are evaluated on, or BENCHMARK=FILE. May be given several times."),
    ] = None,
    max_question_tokens: Annotated[
        int, typer.Option(min=1, help="Longer questions are left out.")
    ] = MAX_QUESTION_TOKENS,
    skip_broken: Annotated[bool, typer.Option("--skip-broken", help="Leave out rows that cannot be read.")] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Turn a data set with rubrics, such as hf:rl-research/dr-tulu-rl-data, into questions to train on.

    Its rubrics become persistent ones. Questions that are evaluated on stay out: the almanac's held-out ones, and
    those of each --evals.
    """
    terminal = Terminal(as_json=as_json, is_quiet=quiet)
    with terminal.working("reading rows"):
        found = prepare_set(
            source, out, evals=evals or (), max_question_tokens=max_question_tokens, skips_broken=skip_broken
        )
    terminal.close(found, "\n".join(_sentences(found, out)), brief=str(out))


def _sentences(found: PreparedSet, out: Path) -> list[str]:
    lines = [
        f"{found.questions} questions of {found.rows} rows in {out}, with {found.rubrics} persistent rubrics, "
        f"{found.flaws} of them for flaws."
    ]
    for reason, numbers in found.left_out.items():
        rows = ", ".join(str(number) for number in numbers[:_SHOWN])
        more = ", ..." if len(numbers) > _SHOWN else ""
        lines.append(f"left out {len(numbers)}: the row {reason.value} ({rows}{more})")
    return [*lines, *(f"  {problem}" for problem in found.problems)]
