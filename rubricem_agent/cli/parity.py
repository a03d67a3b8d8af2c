"""`rubricem parity` replays recorded verdicts through our scorers."""

from pathlib import Path
from typing import Annotated

import typer

from rubricem_agent.cli.command import command
from rubricem_agent.cli.terminal import Terminal
from rubricem_agent.evals.parity.replay import AGREED, DISAGREED, UNREADABLE, replay
from rubricem_env.domain.errors import FileFormatError


@command
def parity(
    terminal: Terminal,
    files: Annotated[list[Path], typer.Argument(help="Files of recorded verdicts, one JSON object per line.")],
) -> None:
    """Replay recorded verdicts; print agreed/total per file and every disagreement.

    Exits with 0 where all agree, 1 where any differs, 2 where a file cannot be read; the others are still replayed.
    """
    document: list[dict[str, object]] = []
    lines: list[str] = []
    code = AGREED
    with terminal.bar("replaying", len(files)) as advance:
        for file in files:
            try:
                agreement = replay(file)
            except FileFormatError as unreadable:
                code = max(code, UNREADABLE)
                document.append({"file": str(file), "unreadable": str(unreadable)})
                terminal.warn(f"rubricem: {unreadable}")
            else:
                code = max(code, DISAGREED if agreement.disagreements else AGREED)
                document.append(
                    {
                        "file": str(file),
                        "agreed": agreement.agreed,
                        "total": agreement.total,
                        "disagreements": [
                            {"id": case.case_id, "differences": case.differences} for case in agreement.disagreements
                        ],
                    }
                )
                lines.append(f"{file}: {agreement.agreed}/{agreement.total}")
                for case in agreement.disagreements:
                    lines += [f"  {case.case_id}: {difference}" for difference in case.differences]
            advance(1)
    terminal.close(document, "\n".join(lines), brief="\n".join(line for line in lines if line.startswith(" ")))
    raise typer.Exit(code)
