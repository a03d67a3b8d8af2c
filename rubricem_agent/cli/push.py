"""`rubricem push`: publish a model, a bank, a record or teacher data on the Hugging Face hub."""

from pathlib import Path
from typing import Annotated

import typer

from rubricem_agent.cli.command import command
from rubricem_agent.cli.terminal import Terminal, inert, plain_table
from rubricem_agent.wiring.hub import CARD, plan_upload, send_upload


@command
def push(
    terminal: Terminal,
    source: Annotated[
        Path, typer.Argument(help="The folder of a model, a bank, a run's record or teacher data; or .npz.")
    ],
    repository: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="The repository; made where it is missing.")],
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Send it; without, show what would be sent.")] = False,
) -> None:
    """Publish on the Hugging Face hub, with a card that says what it is, from which run and which code.

    Nothing is sent without --yes. Look for private questions first: everything in the shown files can be read there.
    """
    kind, files = plan_upload(source)
    sizes = {name: len(file) if isinstance(file, bytes) else file.stat().st_size for name, file in files.items()}
    card = bytes(files[CARD]).decode()
    terminal.say(card)
    terminal.show(plain_table("file", "bytes", rows=[(inert(name), f"{size:,}") for name, size in sizes.items()]))
    sent = send_upload(kind, files, repository, private=private) if yes else ""
    document = {"repository": repository, "kind": kind, "files": sizes, "card": card, "sent": sent}
    outcome = f"sent: {sent}" if sent else f"nothing was sent; --yes sends these files to {repository}."
    terminal.close(document, outcome, brief=sent or "\n".join(files))
