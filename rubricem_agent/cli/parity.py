"""`rubricem parity FILE...`: our scorers against recorded official verdicts."""

from pathlib import Path
from typing import Annotated

import typer

from rubricem_agent.evals.parity import run_parity


def parity(
    files: Annotated[list[Path], typer.Argument(help="Files of recorded verdicts, one JSON object per line.")],
) -> None:
    """Replay recorded verdicts; print agreed/total per file and every disagreement.

    Exits with 0 where all agree, 1 where any differs, 2 where a file cannot be read.
    """
    raise typer.Exit(run_parity(files, typer.echo))
