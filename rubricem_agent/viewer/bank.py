"""Views of a bank: pages, a search, and an item with the groups that saw it and how the same questions did without it.

A run shows the bank that was named, the one in its folder, or the one that its record holds.
"""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.store import HEADER_FILE, STATUSES, BankItem, ItemStatus
from rubricem_agent.viewer.api_runs import (
    BankChange,
    BankItemView,
    BankPage,
    BankRow,
    LessonEffect,
    LessonUse,
    StageScores,
)
from rubricem_agent.viewer.records import NotAllowedError, NotThereError, RunRecordReader, number_or_none, stage_scores
from rubricem_agent.viewer.runs import RunFolder


class BankListing:
    """All items of a bank, newest first; listed anew when the bank changes. Safe under threads."""

    def __init__(self, bank: RubricBank) -> None:
        self.bank = bank
        self._lock = threading.Lock()
        self._mark: tuple[str, int] | None = None
        self._items: Sequence[BankItem] = ()
        self._folded: Sequence[str] | None = None

    def select(self, text: str, status: ItemStatus | None) -> tuple[Sequence[BankItem], Sequence[BankItem]]:
        """All items as they are now, and those that contain the text and have the status."""
        wanted = text.casefold().strip()
        with self._lock:
            mark = self.bank.state_mark
            if mark != self._mark:
                self._items, self._mark, self._folded = self.bank.items()[::-1], mark, None
            if wanted and self._folded is None:
                reflections = (item.reflection for item in self._items)
                self._folded = [f"{one.question}\n{one.rubrics}\n{one.takeaways}".casefold() for one in reflections]
            items, folded = self._items, self._folded
        found = (
            [item for item, words in zip(items, folded, strict=True) if wanted in words] if wanted and folded else items
        )
        return items, found if status is None else [item for item in found if item.status is status]


Scores = npt.NDArray[np.float64]
"""Four numbers, a stage each; NaN where there is no score."""


def find_uses(record: RunRecordReader, item: int) -> tuple[list[LessonUse], StageScores, int]:
    """The groups that saw an item in the order of steps, the mean gain over the groups before, and how many have one.

    The group before is the latest of the same question that did not see the item. The caller holds the record's lock.
    """
    uses = []
    gains = []
    earlier: dict[int, int] = {}
    for number, group in enumerate(record.groups):
        found = next((lesson for lesson in group.lessons if lesson.item == item), None)
        if found is None:
            earlier[group.question] = number
            continue
        before = earlier.get(group.question)
        scores = _means(record, number)
        other = _means(record, before) if before is not None else None
        if other is not None:
            gains.append(scores - other)
        key, text = record.questions[group.question]
        uses.append(
            LessonUse(
                group=group.id,
                step=group.step,
                question=text,
                question_key=key,
                own_question=False,
                similarity=found.similarity,
                scores=stage_scores(scores.tolist()),
                before=stage_scores(other.tolist()) if other is not None else StageScores(),
            )
        )
    return uses, stage_scores(_column_means(np.array(gains).reshape(-1, 4)).tolist()), len(gains)


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


class BankViews:
    """Makes the views of one bank, with its uses according to the record of one run."""

    def __init__(self, listing: BankListing, record: RunRecordReader, *, is_editable: bool, note: str = "") -> None:
        self._listing = listing
        self._bank = listing.bank
        self._record = record
        self._is_editable = is_editable
        self._note = note

    def page(self, *, number: int, size: int, text: str, status: ItemStatus | None) -> BankPage:
        """A page of the items, newest first; `text` is looked for in question, rubrics and takeaways."""
        items, matched = self._listing.select(text, status)
        start = (number - 1) * size
        uses = self._uses()
        rows = tuple(_row(item, uses[item.id]) for item in matched[start : start + size])
        return self._page(rows, items, matched=len(matched), number=number, size=size)

    def _page(
        self, rows: tuple[BankRow, ...], items: Sequence[BankItem], *, matched: int, number: int, size: int
    ) -> BankPage:
        counts = Counter(item.status for item in items)
        return BankPage(
            total=len(items),
            matched=matched,
            page=number,
            size=size,
            rows=rows,
            counts={one: counts[one] for one in STATUSES},
            embedder=self._bank.embedder_name,
            editable=self._is_editable,
            note=self._note,
        )

    def search(self, text: str, *, limit: int) -> BankPage:
        """The active items whose questions are most similar.

        Raises:
            UsageError: the bank's embedder is not here.
        """
        uses = self._uses()
        found = self._bank.search(text, limit=limit)
        rows = tuple(_row(hit.item, uses[hit.item.id], hit.similarity) for hit in found)
        items, _ = self._listing.select("", None)
        return self._page(rows, items, matched=len(rows), number=1, size=limit)

    def item(self, number: int) -> BankItemView:
        """An item whole.

        Raises:
            UnknownItemError: there is none of that number.
        """
        item = self._bank.item(number)
        counts = self._uses()
        with self._record.lock:
            uses, gain, num_compared = find_uses(self._record, number)
        reflection = item.reflection
        return BankItemView(
            row=_row(item, counts[number]),
            rubrics=reflection.rubrics[:MAX_TEXT],
            takeaways=reflection.takeaways[:MAX_TEXT],
            score=_score(item),
            model=reflection.provenance.model,
            prompt_hash=reflection.provenance.prompt_hash,
            history=tuple(_row(other, counts[other.id]) for other in self._bank.history(item.key)),
            uses=tuple(
                use.model_copy(update={"own_question": use.question_key == item.key}) for use in uses[-MAX_USES:][::-1]
            ),
            effect=LessonEffect(groups=num_compared, difference=gain),
            editable=self._is_editable,
        )

    def change(self, number: int, change: BankChange) -> BankItemView:
        """Approve, hold back or remove an item.

        Raises:
            NotAllowedError: the bank cannot be changed from here.
            UnknownItemError: there is no such item, or it is not in a state that can change so.
        """
        if not self._is_editable:
            raise NotAllowedError(self._note or "this bank cannot be changed here.")
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


def _row(item: BankItem, uses: int, similarity: float | None = None) -> BankRow:
    score = item.reflection.score
    return BankRow(
        id=item.id,
        status=item.status,
        reason=item.reason,
        question=item.reflection.question[:MAX_QUESTION],
        question_key=item.key,
        step=item.reflection.provenance.step,
        utility=number_or_none(score.utility) if score else None,
        uses=uses,
        similarity=number_or_none(similarity),
    )


def _score(item: BankItem) -> dict[str, float] | None:
    score = item.reflection.score
    names = ("diagnosis", "specificity", "scope", "within", "cross", "utility")
    return {name: round(getattr(score, name), 4) for name in names} if score is not None else None


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

    def bank_of(self, run: RunFolder) -> BankViews:
        """The views of a run's bank.

        Raises:
            NotThereError: it has none.
            FileFormatError: it cannot be read, or a newer release wrote it.
        """
        with self._lock:
            folder = self._folder(run)
            if folder is not None:
                if folder not in self._listings:
                    self._listings[folder] = BankListing(self._open_folder(folder))
                return BankViews(self._listings[folder], run.record, is_editable=True)
            recorded = run.bank.open()
            if recorded is None:
                raise NotThereError(
                    f"the run {run.name} has no bank to show: nothing was learnt yet, or it was trained without one. "
                    "`rubricem view --bank FOLDER` shows the bank of a folder."
                )
            listing = self._listings.get(run.folder)
            if listing is None or listing.bank is not recorded:
                listing = self._listings[run.folder] = BankListing(recorded)
            return BankViews(listing, run.record, is_editable=False, note=READ_ONLY.format(step=run.bank.step))

    def _folder(self, run: RunFolder) -> Path | None:
        if self._named is not None:
            return self._named
        inside = run.folder / BANK_FOLDER
        return inside if (inside / HEADER_FILE).is_file() else None
