"""`rubricem data`: write teacher data, export it to trainers, report rejections, prepare questions for RL."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from rubricem_agent.cli.command import INCOMPLETE, ProbeOption, ScaffoldOption, command
from rubricem_agent.cli.output_files import open_out
from rubricem_agent.cli.terminal import Terminal, inert, plain_table
from rubricem_agent.config.sections import read_mapping
from rubricem_agent.config.teacher import TeacherConfig
from rubricem_agent.data.base import RepliesPending
from rubricem_agent.data.chatml import export_rows, read_samples
from rubricem_agent.data.filter import SAMPLES_FILE, RejectionReport, read_report
from rubricem_agent.data.prepare import MAX_QUESTION_TOKENS, PreparedSet
from rubricem_agent.data.teacher import estimate
from rubricem_agent.model_names import SCRIPTED, TEACHER_NAMES, parse_teacher
from rubricem_agent.wiring.eval_plan import search_costs
from rubricem_agent.wiring.prices import parse_prices
from rubricem_agent.wiring.teacher_data import (
    load_chat_tokenizer,
    prompts_of,
    read_questions,
    teach as run_teacher,
    teacher_prices,
    tools_of,
)
from rubricem_agent.wiring.training_questions import prepare as prepare_set
from rubricem_agent.yaml_config import parse_yaml_assignment
from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_env.domain.stage_set import DEEP_RESEARCH
from rubricem_env.llm.prices import describe_prices
from rubricem_env.llm.usage import SpendLimitReached, SpendLimits, Spent

_EPOCHS, _BATCH = 5, 128
"""Of configs/sft_qwen3_8b.yaml, the paper's."""
_FEWEST_UPDATES = 40
"""Fewer teach little: the printed command has a smaller batch where there are few samples."""
_SHOWN_ROWS = 8
"""Row numbers listed for each reason of `prepare`."""

data_app = typer.Typer(help="Teacher data for fine-tuning: write, export, report.", no_args_is_help=True)


@dataclass(frozen=True)
class TeacherOptions:
    """What `teach` and `dry-run` ask for alike. Field names are option names."""

    settings: Annotated[
        list[str] | None,
        typer.Argument(help="KEY=VALUE of a teacher's other settings, such as flat=true max_output_tokens=16384."),
    ] = None
    teacher: Annotated[str, typer.Option(help=f"{TEACHER_NAMES}.")] = SCRIPTED
    scaffold: ScaffoldOption = DEEP_RESEARCH.name
    questions: Annotated[Path | None, typer.Option(help="JSONL; the shipped almanac's by default.")] = None
    limit: Annotated[int | None, typer.Option(min=1, help="Use only the first N questions.")] = None
    tools: Annotated[
        str | None,
        typer.Option(
            help="What is searched: web, an index, a TOML file, the URL of a tool server, or offline (the almanac). "
            "Only the almanac's own questions need none named."
        ),
    ] = None
    price: Annotated[
        str | None,
        typer.Option(help="IN,OUT: dollars for a million tokens read and written; the list price by default."),
    ] = None

    def config(self, out: Path) -> TeacherConfig:
        """The settings of the run; raises ConfigError where one is malformed, unknown, or given twice."""
        price = None if self.price is None else parse_prices([self.price]).popitem()[1]
        fields = {**vars(self), "out": out, "price": price}
        given = {key: value for key, value in fields.items() if key != "settings" and value is not None}
        pairs = [parse_yaml_assignment(setting, example="max_output_tokens=16384") for setting in self.settings or ()]
        twice = [key for key, _ in pairs if key in given]
        if twice:
            raise ConfigError(f"{twice[0]} is an option of this command; leave {twice[0]}=VALUE out.")
        return read_mapping({**given, **dict(pairs)}, TeacherConfig, where="the command")


@data_app.command()
@command
def teach(
    terminal: Terminal,
    out: Annotated[Path, typer.Option(help="Folder of the run. The same folder again resumes it.")],
    options: TeacherOptions,
    max_dollars: Annotated[
        float | None, typer.Option(min=0, help="Stop before the teacher has cost more; searches have their own budget.")
    ] = None,
    ray: Annotated[int, typer.Option(min=1, help="Shards on Ray; 1 runs in this process.")] = 1,
    no_probe: ProbeOption = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before a teacher that costs money.")] = False,
) -> None:
    """Have a teacher write traces, and keep those that are fit to train on. Shows the cost, and asks, first.

    The same command resumes a run that was stopped. Exits with 3 where the teacher's server failed for a question.
    """
    changes = {"ceilings": SpendLimits(dollars=max_dollars), "probe": not no_probe, "shards": ray}
    config = options.config(out).model_copy(update=changes)
    count, costs = _estimate(config)
    terminal.say(_describe_costs(config, count, costs))
    terminal.say(f"Searches: {tools_of(config, read_questions(config)).searched}.")
    # On the error stream: the question is no part of the result.
    if parse_teacher(config.teacher).backend != SCRIPTED and not yes:
        try:
            if not typer.confirm("Go on?", err=True):
                return
        except typer.Abort as cause:
            raise UsageError("nobody answered, so nothing was sent; add --yes to begin without a question.") from cause
    open_out(out)
    try:
        with terminal.bar("traces", count) as advance:
            harvested = run_teacher(config, on_trace=lambda _: advance(1))
    except RepliesPending as pause:
        terminal.close({"waiting": str(pause)}, str(pause), brief=str(pause))
        return
    except SpendLimitReached as stop:
        terminal.warn(f"stopped: {stop} The traces so far are in {out}.")
        raise typer.Exit(1) from stop
    samples = str(out / SAMPLES_FILE)
    rejections = harvested.report
    _show_report(rejections, terminal)
    train = f"python -m rubricem_trainers.fine_tuning.sft --config sft_qwen3_8b model=FOLDER samples={samples}"
    batch = max(1, rejections.accepted * _EPOCHS // _FEWEST_UPDATES)
    train += f" batch_size={batch}" if batch < _BATCH else ""
    advice = f"Samples: {samples}. Train a model on them with: {train}"
    terminal.close(
        {"samples": samples, **rejections.model_dump(mode="json")},
        advice if rejections.accepted else "No trace was accepted, so there is nothing to train on.",
        brief=samples,
    )
    if rejections.failed:
        terminal.warn("run the same command again to ask the questions that failed.")
        raise typer.Exit(INCOMPLETE)


@data_app.command("dry-run")
@command
def dry_run(terminal: Terminal, options: TeacherOptions) -> None:
    """Estimate the calls, the tokens and the money of `teach`. Nothing is sent."""
    config = options.config(Path())
    count, costs = _estimate(config)
    document: dict[str, object] = {"questions": count, **dict.fromkeys(costs)}
    for name, cost in costs.items():
        if cost is not None:
            dollars = None if cost.unpriced_calls else cost.dollars
            counts = cost.usage.model_dump(include={"calls", "input_tokens", "output_tokens"})
            document[name] = {**counts, "dollars": dollars}
    text = _describe_costs(config, count, costs)
    terminal.close(document, text, brief=text.splitlines()[-1])


@data_app.command()
@command
def export(
    terminal: Terminal,
    samples: Annotated[Path, typer.Argument(help="samples.jsonl of a run.")],
    to: Annotated[str, typer.Option(help="trl or llama_factory.")],
    tokenizer: Annotated[str, typer.Option(help="The student's, by folder or name.")],
    out: Annotated[Path, typer.Option(help="Folder for the rows and the recipe.")],
    max_tokens: Annotated[int, typer.Option(min=1, help="Longer samples are dropped.")] = 16_384,
) -> None:
    """Write samples as token rows with labels, and the paper's settings for that trainer."""
    with terminal.working("writing rows"):
        rows, dropped = export_rows(
            read_samples(samples), load_chat_tokenizer(tokenizer), folder=out, trainer=to, max_tokens=max_tokens
        )
    terminal.close(
        {"folder": str(out), "rows": rows, "dropped": dropped},
        f"{rows} rows in {out}, {dropped} dropped as too long.",
        brief=str(out),
    )


@data_app.command()
@command
def report(terminal: Terminal, folder: Annotated[Path, typer.Argument(help="Folder of a run.")]) -> None:
    """Count the rejected traces by reason."""
    rejections = read_report(folder)
    _show_report(rejections, terminal)
    terminal.close(rejections, brief=f"{rejections.accepted}/{rejections.traces}")


@data_app.command()
@command
def prepare(
    terminal: Terminal,
    source: Annotated[
        str,
        typer.Argument(
            help="A JSONL, JSON or parquet file, or hf:OWNER/NAME/FILE@REVISION on the hub; its last two parts may be "
            "left out."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write, one question a line.")],
    evals: Annotated[
        list[str] | None,
        typer.Option(help="JSONL of evaluation questions, or BENCHMARK=FILE. May be given several times."),
    ] = None,
    max_question_tokens: Annotated[int, typer.Option(min=1, help="Longer questions are skipped.")] = (
        MAX_QUESTION_TOKENS
    ),
    skip_broken: Annotated[bool, typer.Option("--skip-broken", help="Skip rows that cannot be read.")] = False,
    for_teacher: Annotated[
        bool, typer.Option("--for-teacher", help="Questions for `teach`: rows without rubrics are kept too.")
    ] = False,
) -> None:
    """Turn a data set into questions: for RL those with rubrics, such as hf:rl-research/dr-tulu-rl-data.

    For a teacher any, such as hf:rl-research/dr-tulu-sft-data. Rubrics become persistent ones. Evaluation questions are
    skipped: the almanac's held-out ones, and those of each --evals.
    """
    with terminal.working("reading rows"):
        prepared = prepare_set(
            source,
            out,
            evals=evals or (),
            max_question_tokens=max_question_tokens,
            skips_broken=skip_broken,
            needs_rubrics=not for_teacher,
        )
    terminal.close(prepared, "\n".join(_sentences(prepared, out)), brief=str(out))


def _estimate(config: TeacherConfig) -> tuple[int, dict[str, Spent | None]]:
    """The number of questions, and what they cost; the cost is None where nothing is paid."""
    spec = parse_teacher(config.teacher)
    questions = read_questions(config)
    tasks = questions.tasks
    # A trace searches in every round but the last, which answers.
    searches = search_costs(tools_of(config, questions), len(tasks) * (config.max_rounds - 1))
    costs: dict[str, Spent | None] = {
        search.stage: Spent(usage=search.usage, dollars=search.dollars) for search in searches
    }
    if spec.backend == SCRIPTED:
        return len(tasks), {**costs, "expected": None, "at most": None}
    expected, at_most = estimate(
        tasks,
        prompts_of(config),
        model=spec.model,
        prices=teacher_prices(config),
        fold_at=config.context.fold_at,
    )
    return len(tasks), {**costs, "expected": expected, "at most": at_most}


def _describe_costs(config: TeacherConfig, questions: int, costs: dict[str, Spent | None]) -> str:
    free = "; the scripted teacher costs nothing" if None in costs.values() else ""
    prices = [] if free else describe_prices([parse_teacher(config.teacher).model], teacher_prices(config))
    lines = [f"{questions} questions{free}.", *prices]
    for name, cost in costs.items():
        if cost is None:
            continue
        money = "price unknown" if cost.unpriced_calls else f"${cost.dollars:,.2f}"
        tokens = f"{cost.usage.input_tokens:,} tokens in, {cost.usage.output_tokens:,} out"
        lines.append(f"{name}: {cost.usage.calls:,} calls, {tokens}, {money}")
    return "\n".join(lines)


def _show_report(report: RejectionReport, terminal: Terminal) -> None:
    terminal.say(
        f"{report.traces} traces: {report.accepted} accepted, {report.rejected} rejected, "
        f"{report.by_paper} of them for the paper's own reasons."
    )
    if report.failed:
        terminal.say(
            f"{report.failed} questions failed at the teacher's server, the first with: {inert(report.failure)}"
        )
    rows = [
        (
            reason.reason,
            "paper" if reason.is_paper else "ours",
            str(reason.named),
            str(reason.alone),
            inert(reason.example),
        )
        for reason in report.reasons
    ]
    if rows:
        terminal.show(plain_table("reason", "source", "traces", "alone", "example", rows=rows))


def _sentences(prepared: PreparedSet, out: Path) -> list[str]:
    lines = [
        f"{prepared.questions} questions of {prepared.rows} rows in {out}, with {prepared.rubrics} persistent rubrics, "
        f"{prepared.flaws} of them for flaws."
    ]
    for reason, numbers in prepared.left_out.items():
        rows = ", ".join(str(number) for number in numbers[:_SHOWN_ROWS])
        more = ", ..." if len(numbers) > _SHOWN_ROWS else ""
        lines.append(f"skipped {len(numbers)} ({rows}{more}): the row {reason}")
    return [*lines, *(f"  {problem}" for problem in prepared.problems)]
