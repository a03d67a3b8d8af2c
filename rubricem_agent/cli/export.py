"""`rubricem export`: write recorded attempts in formats of other tools."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from rubricem_agent.cli.command import command
from rubricem_agent.cli.output_files import open_out, write_out
from rubricem_agent.cli.terminal import Terminal
from rubricem_records.rollouts.atif import ATIF_VERSION, dump_atif, to_atif
from rubricem_records.rollouts.attempts import read_attempts

export_app = typer.Typer(help="Write recorded attempts in the formats of other tools.", no_args_is_help=True)


@export_app.callback()
def export() -> None:
    """Write recorded attempts in the formats of other tools."""


@export_app.command("atif")
@command
def atif(
    terminal: Terminal,
    source: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="The folder of a run or an evaluation, or a file of trajectories."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write to, one file an attempt.")],
) -> None:
    """Write each attempt as a document of ATIF, the format of trajectories of Harbor and NeMo Gym.

    Stages, calls with the ids of their snippets, citations, scores and tokens are in it. `judge`, `inspect`, `view` and
    `report` read it back; so do they what other agents wrote in ATIF.
    """
    session = source.resolve().name
    named: Counter[str] = Counter()
    open_out(out)
    for recorded in read_attempts(source):
        named[recorded.name] += 1
        again = f"-{named[recorded.name]}" if named[recorded.name] > 1 else ""
        write_out(out / f"{recorded.name}{again}.json", dump_atif(to_atif(recorded, session=session)), option="-o")
    count = named.total()
    document = {"folder": str(out), "attempts": count, "format": ATIF_VERSION}
    terminal.close(document, f"{count} attempts as {ATIF_VERSION} in {out}", brief=str(out))
