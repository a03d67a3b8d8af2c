"""`rubricem parity FILE...`: our scorers against recorded official verdicts."""

from pathlib import Path
from typing import Annotated

import typer

from rubricem_agent.cli.terminal import JsonOption, QuietOption, Terminal
from rubricem_agent.evals.errors import RecordedCaseError
from rubricem_agent.evals.parity import AGREED, DISAGREED, UNREADABLE, FileParity, replay

Replayed = FileParity | RecordedCaseError
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
    except RecordedCaseError as unreadable:
        return unreadable


def _lines(file: str, replayed: Replayed) -> list[str]:
    if isinstance(replayed, RecordedCaseError):
        return [str(replayed)]
    differing = [f"  {case.id}: {difference}" for case in replayed.disagreements for difference in case.differences]
    return [f"{file}: {replayed.agreed}/{replayed.total}", *differing]


def _describe(replayed: Replayed) -> dict[str, object]:
    if isinstance(replayed, RecordedCaseError):
        return {"unreadable": str(replayed)}
    return {**replayed._asdict(), "disagreements": [case._asdict() for case in replayed.disagreements]}


def _code(replayed: Replayed) -> int:
    if isinstance(replayed, RecordedCaseError):
        return UNREADABLE
    return DISAGREED if replayed.disagreements else AGREED
