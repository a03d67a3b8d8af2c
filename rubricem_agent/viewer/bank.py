"""The items of a bank in the order of a list, with their words ready to be searched; made anew when the bank changes.

Which groups an item of the bank stood before, and how the same questions fared without it.

A bank as the API tells it: pages, a search, and an item with what it did in a run.

Which bank a run shows: one that was named, one that lies in the run's folder, or the one that its record tells of.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.store import HEADER_FILE, BankItem, ItemStatus
from rubricem_agent.viewer.api_runs import (
    BankChange,
    BankItemView,
    BankPage,
    BankRow,
    BankSearch,
    LessonEffect,
    LessonScore,
    LessonUse,
    StageScores,
)
from rubricem_agent.viewer.records import NotAllowedError, NotThereError, RunRecordReader, number_or_none, stage_scores
from rubricem_agent.viewer.runs import RunFolder


class Listed:
    """All items of a bank at one moment, newest first."""

    def __init__(self, items: Sequence[BankItem]) -> None:
        self.items = items
        counts = Counter(item.status for item in items)
        self.counts: Mapping[str, int] = {one.value: counts[one] for one in ItemStatus}

    @cached_property
    def _folded(self) -> list[str]:
        reflections = (item.reflection for item in self.items)
        return [f"{one.question}\n{one.rubrics}\n{one.takeaways}".casefold() for one in reflections]

    def select(self, text: str, status: ItemStatus | None) -> Sequence[BankItem]:
        """The items that hold the text somewhere and have the status; all where neither is asked for."""
        folded = text.casefold().strip()
        if not folded:
            return self.items if status is None else [item for item in self.items if item.status is status]
        found = (item for item, words in zip(self.items, self._folded, strict=True) if folded in words)
        return [item for item in found if status is None or item.status is status]


class BankListing:
    """The listing of one bank. Safe under threads."""

    def __init__(self, bank: RubricBank) -> None:
        self.bank = bank
        self._lock = threading.Lock()
        self._mark: tuple[str, int] | None = None
        self._listed = Listed(())

    def read(self) -> Listed:
        """The items as they are now."""
        with self._lock:
            mark = self.bank.state_mark
            if mark != self._mark:
                self._listed, self._mark = Listed(self.bank.items()[::-1]), mark
            return self._listed


Scores = npt.NDArray[np.float64]
"""Four numbers, a stage each; NaN where there is no score."""


class Use(NamedTuple):
    """A group that saw the item."""

    group: int
    similarity: float
    scores: Scores
    """Means over its rollouts."""
    before: Scores | None
    """Of the same question's latest group before that did not see it."""


def find_uses(record: RunRecordReader, item: int) -> list[Use]:
    """In the order of steps; the caller holds the record's lock."""
    uses = []
    earlier: dict[int, int] = {}
    for number, group in enumerate(record.groups):
        found = next((lesson for lesson in group.lessons if lesson.item == item), None)
        if found is None:
            earlier[group.question] = number
            continue
        before = earlier.get(group.question)
        own, other = _means(record, number), _means(record, before) if before is not None else None
        uses.append(Use(number, found.similarity, own, other))
    return uses


def mean_difference(differences: Sequence[Scores]) -> list[float]:
    """Stage by stage over the groups that have both; NaN where none has."""
    return [float(mean) for mean in _column_means(np.array(differences).reshape(-1, 4))]


def _means(record: RunRecordReader, group: int) -> Scores:
    rows = record.table.of_group(group)
    return _column_means(record.table.rows["scores"][rows].astype(np.float64))


def _column_means(table: npt.NDArray[np.float64]) -> Scores:
    there = ~np.isnan(table)
    counts = there.sum(axis=0)
    sums = np.where(there, table, 0.0).sum(axis=0)
    means: Scores = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return means


MAX_TEXT = 20_000
MAX_QUESTION = 500
MAX_USES = 100


class ShownBank(NamedTuple):
    """A bank that is looked at, and whether it may be changed from here."""

    listing: BankListing
    is_editable: bool
    note: str = ""

    @property
    def bank(self) -> RubricBank:
        return self.listing.bank


class BankViews:
    """Makes the views of one bank, with the uses that one run's record tells of."""

    def __init__(self, shown: ShownBank, record: RunRecordReader) -> None:
        self._shown = shown
        self._record = record
        self._bank = shown.bank

    def page(self, *, number: int, size: int, text: str, status: ItemStatus | None) -> BankPage:
        """A page of the items, newest first; `text` is looked for in question, rubrics and takeaways."""
        listed = self._shown.listing.read()
        matched = listed.select(text, status)
        start = (number - 1) * size
        uses = self._uses()
        return BankPage(
            total=len(listed.items),
            matched=len(matched),
            page=number,
            size=size,
            rows=tuple(_row(item, uses[item.id]) for item in matched[start : start + size]),
            counts=dict(listed.counts),
            embedder=self._bank.embedder_name,
            editable=self._shown.is_editable,
            note=self._shown.note,
        )

    def search(self, text: str, *, limit: int) -> BankSearch:
        """The active items whose questions are most similar.

        Raises:
            OrderError: the bank's embedder is not here.
        """
        uses = self._uses()
        found = self._bank.search(text, limit=limit)
        return BankSearch(rows=tuple(_row(hit.item, uses[hit.item.id], hit.similarity) for hit in found))

    def item(self, number: int) -> BankItemView:
        """An item whole.

        Raises:
            UnknownItemError: there is none of that number.
        """
        item = self._bank.item(number)
        counts = self._uses()
        with self._record.lock:
            uses = find_uses(self._record, number)
        reflection = item.reflection
        return BankItemView(
            row=_row(item, counts[number]),
            rubrics=reflection.rubrics[:MAX_TEXT],
            takeaways=reflection.takeaways[:MAX_TEXT],
            score=_score(item),
            model=reflection.provenance.model,
            prompt_hash=reflection.provenance.prompt_hash,
            history=tuple(_row(other, counts[other.id]) for other in self._bank.history(item.key)),
            uses=tuple(self._use(item, use) for use in uses[-MAX_USES:][::-1]),
            effect=_effect(uses),
            editable=self._shown.is_editable,
        )

    def change(self, number: int, change: BankChange) -> BankItemView:
        """Approve, hold back or remove an item.

        Raises:
            NotAllowedError: the bank cannot be changed from here.
            UnknownItemError: there is no such item, or it is not in a state that can change so.
        """
        if not self._shown.is_editable:
            raise NotAllowedError(self._shown.note or "this bank cannot be changed here.")
        if change.action == "approve":
            self._bank.approve(number)
        elif change.action == "quarantine":
            self._bank.quarantine(number, change.reason)
        else:
            self._bank.remove(number, change.reason)
        return self.item(number)

    def _uses(self) -> Counter[int]:
        with self._record.lock:
            return Counter(lesson.item for group in self._record.groups for lesson in group.lessons)

    def _use(self, item: BankItem, use: Use) -> LessonUse:
        group = self._record.groups[use.group]
        question = self._record.questions[group.question]
        return LessonUse(
            group=group.id,
            step=group.step,
            question=question.text,
            question_key=question.key,
            own_question=question.key == item.key,
            similarity=use.similarity,
            scores=stage_scores(use.scores.tolist()),
            before=stage_scores(use.before.tolist()) if use.before is not None else StageScores(),
        )


def _row(item: BankItem, uses: int, similarity: float | None = None) -> BankRow:
    score = item.reflection.score
    return BankRow(
        id=item.id,
        status=item.status.value,
        reason=item.reason,
        question=item.reflection.question[:MAX_QUESTION],
        question_key=item.key,
        step=item.reflection.provenance.step,
        utility=number_or_none(score.utility) if score else None,
        uses=uses,
        similarity=number_or_none(similarity),
    )


def _score(item: BankItem) -> LessonScore | None:
    score = item.reflection.score
    if score is None:
        return None
    return LessonScore(
        diagnosis=score.diagnosis,
        specificity=score.specificity,
        scope=score.scope,
        within=round(score.within, 4),
        cross=round(score.cross, 4),
        utility=round(score.utility, 4),
    )


def _effect(uses: Sequence[Use]) -> LessonEffect:
    compared = list(_compared(uses))
    return LessonEffect(groups=len(compared), difference=stage_scores(mean_difference(compared)))


def _compared(uses: Sequence[Use]) -> Iterator[np.ndarray]:
    return (use.scores - use.before for use in uses if use.before is not None)


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
