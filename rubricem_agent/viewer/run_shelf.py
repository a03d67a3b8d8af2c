"""The runs under a folder, found again at each look: a run that has just begun appears, a removed one goes."""

import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from rubricem_agent.learn.run_record import RECORD_FOLDER
from rubricem_agent.viewer.problems import NotThereError
from rubricem_agent.viewer.run_folder import RunFolder, kind_of
from rubricem_env.domain.errors import FileFormatError

DEPTH = 3
MOST_FOLDERS = 5_000
_PASSED_OVER = {RECORD_FOLDER, "checkpoints", "model"}


class RunShelf:
    """One run, or all runs under a folder. Ids are digests of paths, so that no request can name a path."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = threading.Lock()
        self._runs: dict[str, RunFolder] = {}

    @classmethod
    def open(cls, root: Path) -> "RunShelf":
        """The shelf of a folder.

        Raises:
            FileFormatError: it is no folder.
        """
        if not root.is_dir():
            raise FileFormatError(f"there is no folder {root}. Give the folder of a run, or one that holds runs.")
        return cls(root.resolve())

    @property
    def only_run(self) -> RunFolder | None:
        """The run that the root itself is; an ablation's folder holds runs as well."""
        runs = self.runs()
        return runs[0] if len(runs) == 1 and runs[0].folder == self.root else None

    def runs(self) -> list[RunFolder]:
        """All runs there are now, in the order of their names."""
        with self._lock:
            found: dict[str, RunFolder] = {}
            for folder in sorted(_folders(self.root)):
                kind = kind_of(folder)
                if kind is None:
                    continue
                name = folder.relative_to(self.root).as_posix() if folder != self.root else folder.name
                run_id = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:12]
                known = self._runs.get(run_id)
                is_same = known is not None and known.kind == kind
                found[run_id] = (
                    known if known and is_same else RunFolder(folder, kind, run_id=run_id, name=_shown(name))
                )
            self._runs = found
            return list(found.values())

    def find(self, run_id: str) -> RunFolder:
        """The run of an id.

        Raises:
            NotThereError: there is none, or no longer.
        """
        with self._lock:
            known = self._runs.get(run_id)
        if known is not None and kind_of(known.folder) == known.kind:
            return known
        found = next((run for run in self.runs() if run.id == run_id), None)
        if found is None:
            raise NotThereError(f"there is no run {run_id[:40]!r} under {self.root}.")
        return found


def _folders(root: Path) -> Iterator[Path]:
    """The root and what lies under it, a few levels deep; links are not followed."""
    for seen, (place, names, _) in enumerate(os.walk(root)):
        folder = Path(place)
        depth = len(folder.relative_to(root).parts)
        names[:] = [name for name in sorted(names) if depth < DEPTH and _is_looked_into(name)]
        if seen >= MOST_FOLDERS:
            return
        yield folder


def _is_looked_into(name: str) -> bool:
    return not name.startswith(".") and name not in _PASSED_OVER


def _shown(name: str) -> str:
    """A name that can be written as UTF-8, whatever the disk calls it."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
