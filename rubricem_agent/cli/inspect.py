"""`rubricem inspect`: what a trajectory file amounts to."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.stage import STAGES
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.domain.trajectory_json import load_trajectory
from rubricem_env.scaffold.reading import Reading, read_trajectory
from rubricem_env.scaffold.violations import Mode


def inspect(
    file: Annotated[Path, typer.Argument(help="A trajectory: one JSON object, or a JSONL file with --line.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    line: Annotated[int | None, typer.Option(min=1, help="Which line of a JSONL file to read, from 1.")] = None,
) -> None:
    """Show the turns, stages, violations and citations of a trajectory file."""
    reading = read_trajectory(read_trajectory_file(file, line))
    if as_json:
        typer.echo(json.dumps(summary(reading), ensure_ascii=False))
    else:
        _print_reading(reading, Console())


def read_trajectory_file(file: Path, line: int | None = None) -> Trajectory:
    """The trajectory of a JSON file, or of one line of a JSONL file.

    Raises:
        FileFormatError: the file cannot be read, has no such line, or holds no trajectory.
    """
    try:
        text = file.read_text(encoding="utf-8", errors="surrogatepass")
    except (OSError, UnicodeDecodeError) as cause:
        raise FileFormatError(f"cannot read {file}: {cause}. Give the path of a trajectory file.") from cause
    if line is None:
        rows = [row for row in text.split("\n") if row.strip()]
        if len(rows) > 1 and all(row.startswith("{") and row.rstrip().endswith("}") for row in rows[:2]):
            raise FileFormatError(f"{file} holds {len(rows)} lines; choose one trajectory with --line N.")
        return load_trajectory(text, str(file))
    # Not splitlines: a line separator such as U+2028 may stand inside a JSON string.
    lines = text.rstrip("\n").split("\n")
    if line > len(lines):
        raise FileFormatError(f"{file} has {len(lines)} lines; there is no line {line}.")
    return load_trajectory(lines[line - 1], f"{file}, line {line}")


def summary(reading: Reading) -> dict[str, Any]:
    """The reading as JSON: spans are character offsets into the joined policy text."""
    return {
        "stages": {stage.value: [list(span) for span in reading.spans.of(stage)] for stage in STAGES},
        "violations": [
            {"code": found.code.value, "turn": found.turn, "message": found.message} for found in reading.violations
        ],
        "citations": {"known": list(reading.citations.known), "unknown": list(reading.citations.unknown)},
        "answer": reading.answer,
        "complete": reading.is_complete,
        "turns": len(reading.turns),
        "ending": reading.trajectory.ending.value if reading.trajectory.ending else None,
    }


def _print_reading(reading: Reading, console: Console) -> None:
    console.print(f"[bold]{_plain(reading.trajectory.question) or '(no question)'}[/bold]")
    stages = Table("stage", "characters", "spans", "happened", box=None, title_justify="left")
    for stage in STAGES:
        spans = reading.spans.of(stage)
        size = sum(span.end - span.start for span in spans)
        shown = " ".join(f"{span.start}-{span.end}" for span in spans) or "-"
        stages.add_row(stage.value, str(size), shown, "yes" if reading.happened(stage) else "no")
    console.print(stages)
    turns = Table("turn", "blocks", "action", box=None)
    for turn in reading.turns:
        action = f"{turn.call.name}: {turn.call.query[:60]}" if turn.call else ("answer" if turn.answer else "none")
        turns.add_row(str(turn.number), ", ".join(block.name for block in turn.blocks), _plain(action))
    console.print(turns)
    _print_findings(reading, console)


def _print_findings(reading: Reading, console: Console) -> None:
    known, unknown, _ = reading.citations
    console.print(
        f"citations: {len(known)} known, {len(unknown)} unknown{': ' + ', '.join(unknown) if unknown else ''}",
        markup=False,
    )
    rejecting = reading.rejects(Mode.STRICT)
    verdict = "accepted" if not rejecting else f"rejected ({len(rejecting)} reasons)"
    console.print(f"complete: {'yes' if reading.is_complete else 'no'}; strict mode: {verdict}")
    for found in reading.violations:
        console.print(f"  {found.code.value}: {found.message}", markup=False, highlight=False)


def _plain(text: str) -> str:
    """Without markup or control characters: the text is not ours."""
    return "".join(char if char.isprintable() else " " for char in text).replace("[", "\\[")
