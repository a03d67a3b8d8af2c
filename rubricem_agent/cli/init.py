"""`rubricem init`: write a small project to begin with."""

from pathlib import Path
from typing import Annotated

import typer

from rubricem_agent.cli.command import command
from rubricem_agent.cli.terminal import Terminal
from rubricem_env.domain.errors import ConfigError
from rubricem_records.files.atomic_files import writing

_PROJECT = Path(__file__).parents[1] / "project"


@command
def init(
    terminal: Terminal, folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or an empty one.")]
) -> None:
    """Write a small project of your own: questions, a search engine, a judge, a config, a test. It runs as it is."""
    with writing(folder, "Name a new folder: rubricem init my_research"):
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ConfigError(f"{folder} is not empty, and nothing in it is overwritten. Name a new folder.")
        for file in sorted(_PROJECT.iterdir()):
            # The code has another suffix here, where it is no module of the package.
            name = file.name.removesuffix(".txt")
            (folder / name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    files = sorted(path.name for path in folder.iterdir())
    summary = f"{folder}: {', '.join(files)}\nPlay it: cd {folder} && python play.py"
    terminal.close({"folder": str(folder), "files": files}, summary, brief=str(folder))
