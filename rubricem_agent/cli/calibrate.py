"""`rubricem calibrate`: how far a judge agrees with labelled examples."""

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from rubricem_agent.build.judge import build_judge
from rubricem_agent.cli.terminal import JsonOption, QuietOption, Terminal, inert, plain_table
from rubricem_agent.cli.watched_judge import WatchedJudge
from rubricem_agent.config.judge import JudgeConfig
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.trajectory_json import first_problem, load_trajectory
from rubricem_env.judge.audit.agreement import Agreement
from rubricem_env.judge.audit.calibration import Calibration, LabelledExample
from rubricem_env.judge.audit.calibration import calibrate as run_calibration
from rubricem_env.judge.rubric_file import read_rubrics

_SHOWN_DISAGREEMENTS = 10


def calibrate(
    file: Annotated[Path, typer.Argument(help='JSON lines: {"trajectory": {...}, "rubric": {...}, "label": 0|1|2}.')],
    judge: Annotated[str, typer.Option("--judge", help="rules, gemini:MODEL or openai:MODEL@URL.")] = "rules",
    *,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run a judge over labelled examples and print its agreement with the labels.

    "trajectory" is an object as in a trajectory file, or the path of one beside FILE; "rubric" a row of a rubric file.
    """
    examples = read_examples(file)
    terminal = Terminal(as_json=as_json, is_quiet=quiet)
    found = asyncio.run(_calibrate(examples, JudgeConfig(judge=judge), terminal=terminal))
    _show(found, terminal)
    kappa = _cells(found.overall)[3]
    terminal.close(_describe(found), {"judge": judge, "examples": len(examples), "kappa": kappa}, brief=kappa)
    if found.unscored:
        raise typer.Exit(1)


def read_examples(file: Path) -> list[LabelledExample]:
    """The examples of a JSON lines file.

    Raises:
        FileFormatError: it cannot be read, is empty, or a line is no example.
    """
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as cause:
        raise FileFormatError(f"cannot read {file}: {cause}. Give the path of a file of labelled examples.") from cause
    examples = [
        _read_example(line, f"{file}, line {number}", folder=file.parent)
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not examples:
        raise FileFormatError(f"{file} holds no example; each line is an object with trajectory, rubric and label.")
    return examples


def _read_example(line: str, where: str, *, folder: Path) -> LabelledExample:
    try:
        row = json.loads(line)
        trajectory, rubric, label = row["trajectory"], row["rubric"], row["label"]
    except (ValueError, KeyError, TypeError, RecursionError) as cause:
        raise FileFormatError(f"{where} is no example; it needs trajectory, rubric and label.") from cause
    if isinstance(trajectory, str):
        try:
            text = (folder / trajectory).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as cause:
            raise FileFormatError(f"{where} names the trajectory {trajectory!r:.60}, which cannot be read.") from cause
    else:
        text = json.dumps(trajectory)
    rubrics = read_rubrics(json.dumps([rubric]), where)
    if not rubrics:
        raise FileFormatError(f"{where} has a rubric of weight 0; there is nothing to agree on.")
    try:
        return LabelledExample(trajectory=load_trajectory(text, where), rubric=rubrics[0], label=label)
    except ValidationError as cause:
        raise FileFormatError(f"{where}: {first_problem(cause)} A label is 0, 1 or 2.") from cause


async def _calibrate(examples: list[LabelledExample], config: JudgeConfig, *, terminal: Terminal) -> Calibration:
    built = build_judge(config)
    try:
        with terminal.bar(f"marking with {built.judge.name}", len(examples)) as on_marked:
            return await run_calibration(WatchedJudge(built.judge, on_marked), examples)
    finally:
        await built.aclose()


def _describe(found: Calibration) -> dict[str, Any]:
    return {
        "overall": found.overall._asdict(),
        "by_stage": {stage.value: agreement._asdict() for stage, agreement in found.by_stage},
        "unscored": found.unscored,
        "disagreements": [row._asdict() for row in found.disagreements],
    }


def _show(found: Calibration, terminal: Terminal) -> None:
    table = plain_table("stage", "examples", "exact", "within one", "kappa", "bias")
    for name, agreement in (*((stage.value, own) for stage, own in found.by_stage), ("all", found.overall)):
        table.add_row(name, *_cells(agreement))
    terminal.show(table)
    if found.unscored:
        terminal.say(f"{found.unscored} examples got no mark from the judge")
    for row in found.disagreements[:_SHOWN_DISAGREEMENTS]:
        told = f"example {row.place + 1}, {row.title}: mark {row.mark}, label {row.label}. {row.justification}"
        terminal.show(f"[dim]{inert(told)}[/dim]")


def _cells(agreement: Agreement) -> tuple[str, ...]:
    shares = (agreement.exact, agreement.within_one, agreement.kappa)
    shown = tuple("-" if share is None else f"{share:.2f}" for share in shares)
    bias = "-" if agreement.bias is None else f"{agreement.bias:+.2f}"
    return (str(agreement.pairs), *shown, bias)
