"""Which bank a run shows: one that was named, one that lies in the run's folder, or the one that its record tells of."""

import threading
from collections.abc import Callable
from pathlib import Path

from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.header import HEADER_FILE
from rubricem_agent.viewer.bank_listing import BankListing
from rubricem_agent.viewer.bank_view import ShownBank
from rubricem_agent.viewer.problems import NotThereError
from rubricem_agent.viewer.run_folder import RunFolder

OpenFolder = Callable[[Path], RubricBank]
BANK_FOLDER = "bank"
READ_ONLY = (
    "This is the bank as the run has recorded it, as of step {step}; the run itself holds it in memory, so it cannot be "
    "changed from here."
)


class BankDoor:
    """Opens each bank once. A folder's bank may be changed; a recorded one may not."""

    def __init__(self, open_folder: OpenFolder, named: Path | None = None) -> None:
        self._open_folder = open_folder
        self._named = named
        self._listings: dict[Path, BankListing] = {}
        self._lock = threading.Lock()

    def has_bank(self, run: RunFolder) -> bool:
        return self._folder(run) is not None or run.bank.is_there

    def bank_of(self, run: RunFolder) -> ShownBank:
        """The bank of a run.

        Raises:
            NotThereError: it has none.
            FileFormatError: it cannot be read, or a newer release wrote it.
        """
        with self._lock:
            folder = self._folder(run)
            if folder is not None:
                if folder not in self._listings:
                    self._listings[folder] = BankListing(self._open_folder(folder))
                return ShownBank(self._listings[folder], True)
            recorded = run.bank.open()
            if recorded is None:
                raise NotThereError(
                    f"the run {run.name} has no bank to show: nothing was learnt yet, or it was trained without one. "
                    "`rubricem view --bank FOLDER` shows the bank of a folder."
                )
            listing = self._listings.get(run.folder)
            if listing is None or listing.bank is not recorded:
                listing = self._listings[run.folder] = BankListing(recorded)
            return ShownBank(listing, False, READ_ONLY.format(step=run.bank.step))

    def _folder(self, run: RunFolder) -> Path | None:
        if self._named is not None:
            return self._named
        inside = run.folder / BANK_FOLDER
        return inside if (inside / HEADER_FILE).is_file() else None
