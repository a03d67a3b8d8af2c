"""The viewer's server, from the folder to its end."""

import contextlib
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

from rubricem_agent.build.memory import open_existing_bank
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.viewer.bank import BankDoor
from rubricem_agent.viewer.runs import RunShelf
from rubricem_env.domain.errors import ConfigError, MissingExtraError

HOST = "127.0.0.1"
PORT = 8420
_GRACE_SECONDS = 2


def serve_viewer(
    root: Path, *, bank: Path | None = None, port: int | None = None, announce: Callable[[str], None]
) -> None:
    """Show a run, or the runs under a folder, on this machine alone, until interrupted.

    `announce` is given the address with its token once a browser may open it. Without a port, 8420 or any free one.

    Raises:
        FileFormatError: there is no such folder.
        ConfigError: the port is taken.
        MissingExtraError: the viewer extra is not installed.
    """
    try:
        import uvicorn

        from rubricem_agent.viewer.requests import ServerContext
        from rubricem_agent.viewer.server import make_app
    except ModuleNotFoundError as cause:
        raise MissingExtraError(cause.name or "fastapi", "viewer", "the viewer") from cause
    desk = ServerContext(RunShelf.open(root), BankDoor(_open_bank, bank))
    token = secrets.token_urlsafe(24)
    settings = uvicorn.Config(
        make_app(desk, token=token),
        log_level="warning",
        access_log=False,
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    with _listen(port) as listening:
        announce(f"http://{HOST}:{listening.getsockname()[1]}/#token={token}")
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(settings).run(sockets=[listening])


def _listen(port: int | None) -> socket.socket:
    """A socket that queues connections from now on, so that a browser may be sent there before the server runs."""
    for tried in (PORT, 0) if port is None else (port,):
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((HOST, tried))
            listening.listen()
            return listening
        except OSError:
            listening.close()
    raise ConfigError(f"cannot listen on {HOST} port {port}: it is taken. Choose another --port; 0 takes a free one.")


def _open_bank(folder: Path) -> RubricBank:
    """The bank of a folder; without its embedder where that is not on this machine, so that all but a search works."""
    try:
        return open_existing_bank(folder, embeds=True)
    except (ConfigError, MissingExtraError):
        return open_existing_bank(folder, embeds=False)
