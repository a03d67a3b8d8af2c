"""`rubricem report`: the folder of a run, an evaluation or an ablation as one HTML page."""

from pathlib import Path
from typing import Annotated

import typer

from rubricem_agent.cli.terminal import JsonOption, QuietOption, Terminal
from rubricem_agent.viewer.run_report import render_report
from rubricem_env.domain.errors import ConfigError


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
