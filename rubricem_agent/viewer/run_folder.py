"""A run's folder, open: what kind it is, and everything in it that is read again only when it has changed."""

import threading
from pathlib import Path
from typing import Literal, NamedTuple

from rubricem_agent.evals.run.manifest import ANSWERS_FILE, MANIFEST_FILE, SCORES_FILE, VERDICTS_FILE
from rubricem_agent.learn.metrics_log import METRICS_FILE, SETTINGS_FILE
from rubricem_agent.learn.run_record import RECORD_FOLDER
from rubricem_agent.viewer.ablation import ABLATION_FILE
from rubricem_agent.viewer.answer_index import AnswerIndex
from rubricem_agent.viewer.recorded_bank import RecordedBank
from rubricem_agent.viewer.run_record_reader import RunRecordReader
from rubricem_agent.viewer.training_run import Run, read_run

Kind = Literal["training", "evaluation", "ablation"]
_WATCHED = (METRICS_FILE, SETTINGS_FILE, ANSWERS_FILE, VERDICTS_FILE, SCORES_FILE, ABLATION_FILE)


def kind_of(folder: Path) -> Kind | None:
    """What a folder holds; None where it is no run."""
    if (folder / ABLATION_FILE).is_file():
        return "ablation"
    if (folder / METRICS_FILE).is_file():
        return "training"
    is_evaluation = (folder / MANIFEST_FILE).is_file() and not (folder / SETTINGS_FILE).is_file()
    return "evaluation" if is_evaluation else None


class _Mark(NamedTuple):
    """Differs after a change of a file."""

    changed: int
    size: int


class RunFolder:
    """One run. Safe under threads."""

    def __init__(self, folder: Path, kind: Kind, *, run_id: str, name: str) -> None:
        self.folder = folder
        self.kind: Kind = kind
        self.id = run_id
        self.name = name
        self.record = RunRecordReader(folder)
        self.bank = RecordedBank(folder)
        self.answers = AnswerIndex(folder)
        self._lock = threading.Lock()
        self._run: Run | None = None
        self._mark: tuple[_Mark, ...] = ()

    def read(self) -> Run:
        """Log and settings of a training run.

        Raises:
            FileFormatError: they cannot be read.
        """
        mark = tuple(_mark(self.folder / name) for name in (METRICS_FILE, SETTINGS_FILE))
        with self._lock:
            if self._run is None or mark != self._mark:
                self._run, self._mark = read_run(self.folder), mark
            return self._run

    @property
    def changed(self) -> float:
        """Unix time of the last change of a file that is shown."""
        record = self.folder / RECORD_FOLDER
        paths = [*(self.folder / name for name in _WATCHED), record / "rollouts.index.jsonl", record / "lessons.jsonl"]
        return max(_mark(path).changed for path in paths) / 1e9


def _mark(path: Path) -> _Mark:
    try:
        told = path.stat()
    except OSError:
        return _Mark(0, 0)
    return _Mark(told.st_mtime_ns, told.st_size)
