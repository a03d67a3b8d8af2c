"""The runs under a folder, and their banks."""

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from rubricem_env.domain.errors import FileFormatError
from rubricem_records.bank.bank_header import HEADER_FILE
from rubricem_records.rollouts.run_record import RECORD_FOLDER
from rubricem_viewer.bank_views import BankViews
from rubricem_viewer.refusals import NotThereError
from rubricem_viewer.run_folder import RunFolder, kind_of
from rubricem_viewer.shown_bank import MakeSearch, ShownBank

DEPTH = 3

MOST_FOLDERS = 5_000

BANK_FOLDER = "bank"

_PASSED_OVER = {RECORD_FOLDER, "checkpoints", "model"}


class RunShelf:
    """One run, or all runs under a folder, and their banks. Safe under threads.

    Ids are digests of paths, so that no request can name a path. A run shows the bank that was named, the one in its
    folder, or the one that its record holds; the last cannot be changed.
    """

    def __init__(
        self,
        root: Path,
        open_bank: Callable[[Path], ShownBank],
        *,
        bank: Path | None = None,
        make_search: MakeSearch | None = None,
    ) -> None:
        """`open_bank` opens the bank of a folder, `make_search` a search in the lessons of a record.

        `bank` is the folder of the bank that all runs show, in place of their own.

        Raises:
            FileFormatError: the root is no folder.
        """
        if not root.is_dir():
            raise FileFormatError(f"there is no folder {root}. Give the folder of a run, or one that holds runs.")
        self.root = root.resolve()
        self._open_bank = open_bank
        self._named_bank = bank
        self._make_search = make_search
        self._lock = threading.Lock()
        self._runs: dict[str, RunFolder] = {}
        self._bank_lock = threading.Lock()
        self._banks: dict[Path, ShownBank] = {}
        self._views: dict[str, BankViews] = {}

    def runs(self) -> list[RunFolder]:
        """All runs there are now, in the order of their names."""
        with self._lock:
            present: dict[str, RunFolder] = {}
            for folder in sorted(_folders(self.root)):
                kind = kind_of(folder)
                if kind is None:
                    continue
                name = folder.relative_to(self.root).as_posix() if folder != self.root else folder.name
                written = name.encode("utf-8", "surrogateescape")
                run_id = hashlib.sha256(written).hexdigest()[:12]
                known = self._runs.get(run_id)
                if known is None or known.kind != kind:
                    shown_name = written.decode("utf-8", "replace")
                    known = RunFolder(folder, kind, run_id=run_id, name=shown_name, make_search=self._make_search)
                present[run_id] = known
            self._runs = present
            return list(present.values())

    def find(self, run_id: str) -> RunFolder:
        """The run of an id.

        Raises:
            NotThereError: there is none, or no longer.
        """
        with self._lock:
            known = self._runs.get(run_id)
        if known is not None and kind_of(known.folder) == known.kind:
            return known
        listed = next((run for run in self.runs() if run.id == run_id), None)
        if listed is None:
            raise NotThereError(f"there is no run {run_id[:40]!r} under {self.root}.")
        return listed

    def has_bank(self, run: RunFolder) -> bool:
        return self._bank_folder(run) is not None or run.bank.is_there

    def bank_of(self, run: RunFolder) -> BankViews:
        """The views of a run's bank; each bank is opened once.

        Raises:
            NotThereError: it has none.
            FileFormatError: it cannot be read, or a newer release wrote it.
        """
        with self._bank_lock:
            folder = self._bank_folder(run)
            if folder is not None and folder not in self._banks:
                self._banks[folder] = self._open_bank(folder)
            bank: ShownBank | None = run.bank.open() if folder is None else self._banks[folder]
            if bank is None:
                raise NotThereError(
                    f"the run {run.name} has no bank to show: nothing was learnt yet, or it was trained without one. "
                    "`rubricem view --bank FOLDER` shows the bank of a folder."
                )
            views = self._views.get(run.id)
            if views is None or views.bank is not bank:
                views = self._views[run.id] = BankViews(bank, run.record, run.bank if folder is None else None)
            return views

    def _bank_folder(self, run: RunFolder) -> Path | None:
        inside = run.folder / BANK_FOLDER
        return self._named_bank or (inside if (inside / HEADER_FILE).is_file() else None)


def _folders(root: Path) -> Iterator[Path]:
    """The root and what lies under it, a few levels deep; links are not followed."""
    for seen, (path, names, _) in enumerate(os.walk(root)):
        folder = Path(path)
        depth = len(folder.relative_to(root).parts)
        is_deep = depth >= DEPTH
        names[:] = [name for name in sorted(names) if not (is_deep or name.startswith(".") or name in _PASSED_OVER)]
        if seen >= MOST_FOLDERS:
            return
        yield folder
