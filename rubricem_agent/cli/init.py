"""`rubricem init`: write a small project to begin with."""

from pathlib import Path
from typing import Annotated

import typer

from rubricem_agent.cli.command import command
from rubricem_agent.cli.terminal import Terminal
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.stage_set import stage_set_folder
from rubricem_records.files.atomic_files import writing

_PROJECT = Path(__file__).parents[1] / "project"


@command
def init(
    terminal: Terminal,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or an empty one.")],
    scaffold: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Write the stages and prompts of that task instead, to make your own of."),
    ] = None,
) -> None:
    """Write a small project of your own: questions, a search engine, a judge, a config, a test. It runs as it is."""
    source = _PROJECT if scaffold is None else stage_set_folder(scaffold)
    with writing(folder, "Name a new folder: rubricem init my_research"):
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ConfigError(f"{folder} is not empty, and nothing in it is overwritten. Name a new folder.")
        for file in sorted(source.iterdir()):
            # The code has another suffix here, where it is no module of the package.
            name = file.name.removesuffix(".txt")
            (folder / name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    files = sorted(path.name for path in folder.iterdir())
    way_on = f"Play it: cd {folder} && python play.py"
    if scaffold is not None:
        way_on = f"Change name and stages, then: rubricem ask --scaffold {folder} --policy MODEL"
    summary = f"{folder}: {', '.join(files)}\n{way_on}"
    terminal.close({"folder": str(folder), "files": files}, summary, brief=str(folder))
