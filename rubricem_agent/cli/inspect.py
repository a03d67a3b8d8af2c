"""`rubricem inspect`: what a trajectory file amounts to."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rubricem_agent.cli.terminal import JsonOption, QuietOption, Terminal, inert, plain_table
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.stage import STAGES
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.domain.trajectory_json import load_trajectory
from rubricem_env.scaffold.reading import Reading, read_trajectory
from rubricem_env.scaffold.violations import Mode


def inspect(
    file: Annotated[Path, typer.Argument(help="A trajectory: one JSON object, or a JSONL file with --line.")],
    line: Annotated[int | None, typer.Option(min=1, help="Which line of a JSONL file to read, from 1.")] = None,
    *,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show the turns, stages, violations and citations of a trajectory file."""
    reading = read_trajectory(read_trajectory_file(file, line))
    terminal = Terminal(as_json=as_json, is_quiet=quiet)
    _show_reading(reading, terminal)
    rejecting = reading.rejects(Mode.STRICT)
    verdict = "accepted" if not rejecting else f"rejected ({len(rejecting)} reasons)"
    terminal.close(
        summary(reading),
        {"complete": "yes" if reading.is_complete else "no", "strict mode": verdict},
        brief=verdict,
    )


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


def _show_reading(reading: Reading, terminal: Terminal) -> None:
    stages = plain_table("stage", "characters", "spans", "happened")
    for stage in STAGES:
        spans = reading.spans.of(stage)
        size = sum(span.end - span.start for span in spans)
        shown = " ".join(f"{span.start}-{span.end}" for span in spans) or "-"
        stages.add_row(stage.value, str(size), shown, "yes" if reading.happened(stage) else "no")
    turns = plain_table("turn", "blocks", "action")
    for turn in reading.turns:
        action = f"{turn.call.name}: {turn.call.query[:60]}" if turn.call else ("answer" if turn.answer else "none")
        turns.add_row(str(turn.number), ", ".join(block.name for block in turn.blocks), inert(action))
    known, unknown, _ = reading.citations
    cited = f"citations: {len(known)} known, {len(unknown)} unknown{': ' + ', '.join(unknown) if unknown else ''}"
    question = inert(reading.trajectory.question) or "(no question)"
    terminal.show(f"[bold]{question}[/bold]", stages, turns, inert(cited))
    for found in reading.violations:
        terminal.show(inert(f"  {found.code.value}: {found.message}"))
