"""`rubricem report`: a run's folder, or an ablation's, as one HTML page."""

from pathlib import Path
from typing import Annotated

import typer

from rubricem_agent.cli.terminal import JsonOption, QuietOption, Terminal
from rubricem_agent.viewer.ablation import ABLATION_FILE
from rubricem_agent.viewer.ablation_report import load_ablation, render_ablation
from rubricem_agent.viewer.run_report import read_run, render_run
from rubricem_env.domain.errors import ConfigError


def report(
    folder: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Folder of a run or of an ablation.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The page; RUN_DIR/report.html by default.")] = None,
    *,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write one self-contained page: curves, health, cost. Works while the run goes on, too."""
    page = (
        render_ablation(load_ablation(folder)) if (folder / ABLATION_FILE).is_file() else render_run(read_run(folder))
    )
    path = out or folder / "report.html"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    except OSError as cause:
        raise ConfigError(f"cannot write {path}: {cause.strerror}. Choose another path with -o.") from cause
    Terminal(as_json=as_json, is_quiet=quiet).close({"page": str(path)}, f"Page: {path}", brief=str(path))
