"""`rubricem report`: write the page of a run."""

from pathlib import Path
from typing import Annotated

import typer

from rubricem_agent.cli.command import command
from rubricem_agent.cli.output_files import write_out
from rubricem_agent.cli.terminal import Terminal
from rubricem_viewer.report import render_report


@command
def report(
    terminal: Terminal,
    folder: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Folder of a run, an evaluation or an ablation.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The page; RUN_DIR/report.html by default.")] = None,
) -> None:
    """Write one self-contained page: curves, a sample of attempts with their verdicts, rubrics, lessons.

    The run may still be in progress.
    """
    path = out or folder / "report.html"
    write_out(path, render_report(folder), option="-o", makes_folder=True)
    terminal.close({"page": str(path)}, f"Page: {path}", brief=str(path))
