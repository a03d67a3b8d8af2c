"""One run: what kind its folder is, and its files, read again when they change."""

import threading
from pathlib import Path

from rubricem_records.evaluations.manifest import ANSWERS_FILE, MANIFEST_FILE, SCORES_FILE, VERDICTS_FILE
from rubricem_records.evaluations.scores import Scores, read_scores
from rubricem_records.rollouts.run_record import RECORD_FOLDER
from rubricem_records.runs.recorded_run import RecordedRun, read_run
from rubricem_records.runs.run_log import METRICS_FILE
from rubricem_records.runs.run_settings import SETTINGS_FILE
from rubricem_records.runs.trainer_errors import ERRORS_FILE
from rubricem_viewer.ablation import ABLATION_FILE
from rubricem_viewer.answer_index import AnswerIndex
from rubricem_viewer.api.runs import RunKind
from rubricem_viewer.record_reader import RunRecordReader
from rubricem_viewer.recorded_bank import RecordedBank
from rubricem_viewer.shown_bank import MakeSearch

_WATCHED = (METRICS_FILE, SETTINGS_FILE, ERRORS_FILE, ANSWERS_FILE, VERDICTS_FILE, SCORES_FILE, ABLATION_FILE)


def kind_of(folder: Path) -> RunKind | None:
    """What a folder holds; None where it is no run."""
    # A folder or a pipe of such a name is a run that cannot be read.
    if (folder / ABLATION_FILE).exists():
        return "ablation"
    if (folder / METRICS_FILE).exists():
        return "training"
    is_evaluation = (folder / MANIFEST_FILE).exists() and not (folder / SETTINGS_FILE).is_file()
    return "evaluation" if is_evaluation else None


class RunFolder:
    """One run. Safe under threads."""

    def __init__(
        self, folder: Path, kind: RunKind, *, run_id: str, name: str, make_search: MakeSearch | None = None
    ) -> None:
        self.folder = folder
        self.kind: RunKind = kind
        self.id = run_id
        self.name = name
        self.record = RunRecordReader(folder)
        self.bank = RecordedBank(folder, make_search)
        self.answers = AnswerIndex(folder)
        self._lock = threading.Lock()
        self._run: RecordedRun | None = None
        self._mark: tuple[tuple[int, int], ...] = ()

    def read(self) -> RecordedRun:
        """Log and settings of a training run.

        Raises:
            FileFormatError: they cannot be read.
        """
        mark = tuple(_mark(self.folder / name) for name in (METRICS_FILE, SETTINGS_FILE))
        with self._lock:
            if self._run is None or mark != self._mark:
                self._run = read_run(self.folder)
                self._mark = mark
            return self._run

    @property
    def changed(self) -> float:
        """Unix time of the last change of a file that is shown."""
        record = self.folder / RECORD_FOLDER
        paths = [*(self.folder / name for name in _WATCHED), record / "rollouts.index.jsonl", record / "lessons.jsonl"]
        return max(_mark(path)[0] for path in paths) / 1e9


def _mark(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


def stored_scores(run: RunFolder) -> Scores | None:
    """The numbers of an evaluation; None as long as there are none.

    Raises:
        FileFormatError: they cannot be read.
    """
    return read_scores(run.folder) if (run.folder / SCORES_FILE).is_file() else None
