"""`rubricem view`: show runs in the browser."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from rubricem_agent.cli.command import command
from rubricem_agent.cli.shown_run import open_shown_run
from rubricem_agent.cli.terminal import Terminal, to_json
from rubricem_agent.wiring.viewer import serve_viewer


@command
def view(
    terminal: Terminal,
    folder: Annotated[
        Path,
        typer.Argument(metavar="[RUN_DIR]", help="Folder of a run, of runs, or of ATIF files.", show_default=True),
    ] = Path("runs"),
    bank: Annotated[
        Path | None, typer.Option(help="The folder of a rubric bank to show and edit beside each run.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The port; 0 takes a free one. By default 8420 if it is free.")
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Show runs in the browser until interrupted: curves, trajectories, rubrics, bank, evaluations.

    The server listens on this machine alone, and serves whoever has the printed address, which holds a token. With
    --json one line is printed once it listens: {"url"}.
    """

    def announce(url: str, num_runs: int) -> None:
        # Printed for the user who started it, and nowhere else: the token is in no log and no file.
        shown = to_json({"url": url}) if terminal.as_json else url
        typer.echo(shown if terminal.is_silent else f"Showing {folder}: {url}\nStop with Ctrl-C.")
        if not num_runs:
            terminal.warn(f"{folder} holds no run yet; the page lists those that begin while it is open.")
        if open_browser and not webbrowser.open(url):
            terminal.warn("no browser could be opened; open the address by hand")

    with open_shown_run(folder) as shown_folder:
        serve_viewer(shown_folder, bank=bank, port=port, announce=announce)
