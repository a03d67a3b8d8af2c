"""Runs the viewer's server."""

import contextlib
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.embed import HashingEmbedder
from rubricem_agent.memory.store import MemoryStore
from rubricem_agent.wiring.memory import open_existing_bank
from rubricem_agent.wiring.models import requires_extra
from rubricem_agent.wiring.tools import listen
from rubricem_env.domain.errors import ConfigError, MissingExtraError
from rubricem_records.bank.bank_items import Retrieved, StoredItem
from rubricem_viewer.shelf import RunShelf

_HOST = "127.0.0.1"
_PORT = 8420
_SHUTDOWN_SECONDS = 2


def serve_viewer(
    root: Path, *, bank: Path | None = None, port: int | None = None, announce: Callable[[str, int], None]
) -> None:
    """Show a run, or the runs under a folder, on this machine alone, until interrupted.

    `bank` is the folder of the bank that all runs show; without it, each run shows its own. `announce` is called with
    the address and its token, and with the number of runs, once the server listens. The default port is 8420, or any
    free one.

    Raises:
        FileFormatError: there is no such folder, or no bank in the one that is named.
        ConfigError: the port is taken.
        MissingExtraError: the viewer extra is not installed.
    """
    with requires_extra("viewer", "the viewer"):
        import uvicorn

        from rubricem_viewer.server import make_app
    if bank is not None:
        open_existing_bank(bank, embeds=False)
    shelf = RunShelf(root, _open_bank, bank=bank, make_search=RecordedSearch)
    token = secrets.token_urlsafe(24)
    settings = uvicorn.Config(
        make_app(shelf, token=token),
        log_level="warning",
        access_log=False,
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    settings.load()
    settings.get_loop_factory()  # Before the address is told: an interrupt during an import may be lost.
    with listen(_HOST, *((_PORT, 0) if port is None else (port,))) as listening:
        announce(f"http://{_HOST}:{listening.getsockname()[1]}/#token={token}", len(shelf.runs()))
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(settings).run(sockets=[listening])


def _open_bank(folder: Path) -> RubricBank:
    """The bank of a folder; without its embedder where that is not on this machine: then all but the search works."""
    try:
        return open_existing_bank(folder, embeds=True)
    except (ConfigError, MissingExtraError):
        return open_existing_bank(folder, embeds=False)


class RecordedSearch:
    """A search in the recorded lessons of one run, as its bank would search them.

    The vectors are those of the run's own embedder. A text is embedded where that embedder needs no weights; elsewhere
    a search raises UsageError.
    """

    def __init__(self, embedder: str, dimension: int) -> None:
        hashing = HashingEmbedder(dimension)
        self._store = MemoryStore(embedder=embedder, dimension=dimension)
        self._bank = RubricBank(self._store, hashing if hashing.name == embedder else None)

    def add(self, rows: Sequence[StoredItem]) -> None:
        self._store.put(rows)

    def search(self, text: str, *, limit: int) -> tuple[Retrieved, ...]:
        return self._bank.search(text, limit=limit)
