"""`rubricem report`: write the page of a run."""

from pathlib import Path
from typing import Annotated

import typer

from rubricem_agent.cli.command import command
from rubricem_agent.cli.output_files import write_out
from rubricem_agent.cli.shown_run import open_shown_run
from rubricem_agent.cli.terminal import Terminal
from rubricem_viewer.report import render_report


@command
def report(
    terminal: Terminal,
    folder: Annotated[
        Path, typer.Argument(metavar="RUN_DIR", help="Folder of a run, an evaluation, an ablation or ATIF files.")
    ],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The page; RUN_DIR/report.html by default.")] = None,
) -> None:
    """Write one self-contained page: curves, a sample of attempts with their verdicts, rubrics, lessons.

    The run may still be in progress.
    """
    path = out or (folder if folder.is_dir() else folder.parent) / "report.html"
    with open_shown_run(folder) as shown_folder:
        write_out(path, render_report(shown_folder), option="-o", makes_folder=True)
    terminal.close({"page": str(path)}, f"Page: {path}", brief=str(path))
