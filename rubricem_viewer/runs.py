"""The runs under a folder: what kind each is, its card in the list, and its files, read again when they change."""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rubricem_env.domain.errors import FileFormatError, RubricEMError, boundary
from rubricem_records.bank_header import HEADER_FILE
from rubricem_records.evaluation_manifest import (
    ANSWERS_FILE,
    MANIFEST_FILE,
    SCORES_FILE,
    VERDICTS_FILE,
    judge_model,
    read_manifest,
)
from rubricem_records.evaluation_names import agent_name
from rubricem_records.evaluation_scores import NO_JUDGE, Scores, read_scores
from rubricem_records.log_lines import StepLine
from rubricem_records.recorded_run import RecordedRun, read_run
from rubricem_records.run_log import METRICS_FILE
from rubricem_records.run_record import RECORD_FOLDER
from rubricem_records.run_settings import SETTINGS_FILE
from rubricem_viewer.ablation import ABLATION_FILE, load_ablation
from rubricem_viewer.api import RunCard, RunDetail, RunKind, StageScores, Standing
from rubricem_viewer.bank import BankViews
from rubricem_viewer.recorded_bank import RecordedBank
from rubricem_viewer.records import AnswerIndex, NotThereError, RunRecordReader, UnreadableRunError, number_or_none
from rubricem_viewer.shown_bank import MakeSearch, ShownBank

_WATCHED = (METRICS_FILE, SETTINGS_FILE, ANSWERS_FILE, VERDICTS_FILE, SCORES_FILE, ABLATION_FILE)


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
                self._run, self._mark = read_run(self.folder), mark
            return self._run

    @property
    def changed(self) -> float:
        """Unix time of the last change of a file that is shown."""
        record = self.folder / RECORD_FOLDER
        paths = [*(self.folder / name for name in _WATCHED), record / "rollouts.index.jsonl", record / "lessons.jsonl"]
        return max(_mark(path)[0] for path in paths) / 1e9


def _mark(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


PATIENCE = 120.0
"""Seconds without a line after which a run counts as stale, or four of its steps."""
_EMPTY = StageScores()


def make_card(run: RunFolder) -> RunCard:
    """The card of a run; one that cannot be read says why."""
    try:
        with boundary(UnreadableRunError, f"read the run {run.name}"):
            if run.kind == "evaluation":
                return _evaluation_card(run)
            return _ablation_card(run) if run.kind == "ablation" else _training_card(run)
    except RubricEMError as problem:
        return _card(run, "unreadable", problem=str(problem))


def make_detail(run: RunFolder, card: RunCard, notes: Sequence[str] = ()) -> RunDetail:
    """The card with the settings and the warnings of a training run that can be read."""
    read = run.read() if run.kind == "training" and card.state != "unreadable" else None
    return RunDetail(
        card=card,
        settings=read.settings if read else {},
        warnings=tuple({"step": line.step, "message": line.alarm} for line in read.log.warnings) if read else (),
        notes=tuple(notes),
    )


def _training_card(run: RunFolder) -> RunCard:
    run.record.refresh()
    read = run.read()
    last = read.log.steps[-1] if read.log.steps else None
    evaluation = read.log.evaluations[-1] if read.log.evaluations else None
    return _card(
        run,
        _standing(run, read, last),
        recipe=read.title if read.recipe else "",
        title=read.title,
        step=last.step if last else 0,
        steps=_planned(read),
        scores=StageScores(**{name: evaluation.held_out.get(name) for name in StageScores.model_fields})
        if evaluation
        else _EMPTY,
        scored_at=evaluation.step if evaluation else None,
        scored_by=evaluation.by if evaluation else "truth",
        lessons=last.bank if last else 0,
        seconds=round(sum(sum(line.seconds.values()) for line in read.log.steps), 1),
        warnings=len(read.log.warnings),
        recorded=len(run.record.table.rows),
        has_bank=run.bank.is_there,
    )


def _standing(run: RunFolder, read: RecordedRun, last: StepLine | None) -> Standing:
    planned, step = _planned(read), last.step if last else 0
    if planned is not None and step >= planned:
        return "finished"
    patience = max(PATIENCE, 4 * sum(last.seconds.values()) if last else 0.0)
    if time.time() - run.changed < patience:
        return "running"
    warnings = read.log.warnings
    return "stopped" if warnings and warnings[-1].step == step else "stale"


def _planned(read: RecordedRun) -> int | None:
    steps = read.settings.get("steps")
    return steps if isinstance(steps, int) else None


def _evaluation_card(run: RunFolder) -> RunCard:
    manifest = read_manifest(run.folder)
    rows = run.answers.rows()
    scores = stored_scores(run)
    expected = len(manifest.inputs.ids) * manifest.epochs
    answered = sum(not row.failure for row in rows)
    is_fresh = time.time() - run.changed < PATIENCE
    judge = judge_model(scores.headline.judge) if scores and scores.judges else NO_JUDGE
    state: Standing = "finished" if scores is not None and scores.is_complete else "running" if is_fresh else "stale"
    return _card(
        run,
        state,
        title=f"{manifest.title}, {agent_name(scores) if scores else manifest.agent.policy}"
        + (f", judged by {judge}" if judge != NO_JUDGE else ""),
        step=answered,
        steps=expected,
        scores=StageScores(answer=number_or_none(scores.headline.score)) if scores and scores.judges else _EMPTY,
        seconds=round(sum(row.seconds for row in rows), 1),
        dollars=round(scores.dollars if scores else sum(row.dollars for row in rows), 4),
        recorded=len(rows),
    )


def stored_scores(run: RunFolder) -> Scores | None:
    """The numbers of an evaluation; None as long as there are none.

    Raises:
        FileFormatError: they cannot be read.
    """
    return read_scores(run.folder) if (run.folder / SCORES_FILE).is_file() else None


def _ablation_card(run: RunFolder) -> RunCard:
    ablation = load_ablation(run.folder)
    best = max(ablation.results, key=lambda result: result.answer.mean)
    return _card(
        run,
        "finished",
        title=f"The ablation: {len(ablation.results)} recipes, {len(ablation.results[0].seeds)} seeds",
        step=ablation.steps,
        steps=ablation.steps,
        scores=StageScores(answer=number_or_none(best.answer.mean)),
        scored_at=ablation.steps,
        seconds=round(sum(result.seconds * len(result.seeds) for result in ablation.results), 1),
    )


def _card(run: RunFolder, state: Standing, **shown: Any) -> RunCard:
    """The card of a run with the fields that are shown of its kind."""
    return RunCard(id=run.id, name=run.name, kind=run.kind, state=state, changed=round(run.changed, 3), **shown)


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
            found: dict[str, RunFolder] = {}
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
                found[run_id] = known
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
