"""`rubricem view`: runs in the browser, while they go on and afterwards.

`rubricem report`: the folder of a run, an evaluation or an ablation as one HTML page.
"""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from rubricem_agent.build.viewer import serve_viewer
from rubricem_agent.cli.terminal import JsonOption, QuietOption, Terminal, to_json
from rubricem_agent.viewer.report import render_report
from rubricem_env.domain.errors import ConfigError

DEFAULT_ROOT = Path("runs")


def view(
    folder: Annotated[
        Path, typer.Argument(metavar="[RUN_DIR]", help="Folder of a run, or one that holds runs.", show_default=True)
    ] = DEFAULT_ROOT,
    bank: Annotated[
        Path | None, typer.Option(help="The folder of a rubric bank to show, and to look after, beside each run.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The port; 0 takes a free one. By default 8420 if it is free.")
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    *,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show runs in the browser until interrupted: curves, trajectories, rubrics, bank, evaluations.

    It listens on this machine alone; whoever has the printed address, which holds a token, may look. With --json one
    line is printed once it listens: {"url"}.
    """
    terminal = Terminal(as_json=as_json, is_quiet=quiet)

    def announce(url: str) -> None:
        # To the terminal of the one who started it, and nowhere else: the token is in no log and no file.
        if as_json:
            typer.echo(to_json({"url": url}))
        elif quiet:
            typer.echo(url)
        else:
            terminal.say(f"Showing {folder}: {url}\nStop with Ctrl-C.")
        if open_browser and not webbrowser.open(url):
            terminal.warn("no browser could be opened; open the address by hand")

    serve_viewer(folder, bank=bank, port=port, announce=announce)


def report(
    folder: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Folder of a run, an evaluation or an ablation.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The page; RUN_DIR/report.html by default.")] = None,
    *,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write one self-contained page: curves, a sample of attempts with their verdicts, rubrics, lessons.

    Works while the run goes on, too.
    """
    page = render_report(folder)
    path = out or folder / "report.html"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    except OSError as cause:
        raise ConfigError(f"cannot write {path}: {cause.strerror}. Choose another path with -o.") from cause
    Terminal(as_json=as_json, is_quiet=quiet).close({"page": str(path)}, f"Page: {path}", brief=str(path))
