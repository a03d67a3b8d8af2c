"""Views of a bank: pages, a search, and an item with the groups that saw it and how the same questions did without it."""

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import UsageError
from rubricem_records.bank_items import STATUSES, BankItem, ItemStatus
from rubricem_viewer.api import Page, StageScores
from rubricem_viewer.recorded_bank import RecordedBank
from rubricem_viewer.records import NotThereError, PageFilter, RunRecordReader, mean_of, number_or_none, stage_scores
from rubricem_viewer.shown_bank import ShownBank

Status = Literal["active", "quarantined", "superseded", "removed"]


class BankRow(Frozen):
    """An item in a list."""

    id: int
    status: Status
    reason: Text
    question: Text
    question_key: Text
    step: int
    utility: float | None
    uses: int
    """Groups that it stood before, in this run."""
    similarity: float | None = None
    """In a search: to what was searched for."""


class BankPage(Page[BankRow]):
    """A search gives one page of active items, most similar first, as a policy would find them."""

    counts: dict[str, int]
    """By status."""
    editable: bool
    note: Text
    """Why it cannot be edited, or as of which step it is shown; empty where there is nothing to say."""


class LessonUse(Frozen):
    """A group of attempts that saw the item."""

    group: Text
    step: int
    question: Text
    question_key: Text
    own_question: bool
    """The repeat of the question that it was learnt from."""
    similarity: float
    scores: StageScores
    before: StageScores
    """Of the same question's latest group before, without the item; null where there is none."""


class BankItemView(Frozen):
    row: BankRow
    rubrics: Text
    takeaways: Text
    score: dict[str, float] | None
    """By the reflection judge: diagnosis, specificity, scope, within, cross and utility."""
    model: Text
    prompt_hash: Text
    history: tuple[BankRow, ...]
    """All items of the question, oldest first."""
    uses: tuple[LessonUse, ...]
    """The latest 100."""
    compared: int
    """The groups that have an earlier group of the same question to compare with."""
    difference: StageScores
    """Their scores less those of the earlier groups; a hint, since the policy learns meanwhile."""
    editable: bool


class BankChange(Frozen):
    """The body of a POST."""

    action: Literal["approve", "quarantine", "remove"]
    reason: Annotated[Text, Field(max_length=500)] = ""


MAX_TEXT = 20_000
MAX_QUESTION = 500
MAX_USES = 100
SCORE_NAMES = ("diagnosis", "specificity", "scope", "within", "cross", "utility")
READ_ONLY = (
    "This is the bank as the run has recorded it, as of step {step}; the run itself holds it in memory, so it cannot be "
    "changed from here."
)


def find_uses(record: RunRecordReader, item: int, *, key: str) -> tuple[list[LessonUse], StageScores, int]:
    """The groups that saw an item in the order of steps, the mean gain over the groups before, and how many have one.

    The group before is the latest of the same question that did not see the item, which was learnt from the question
    `key`. The caller holds the record's lock.
    """
    uses = []
    gains = []
    earlier: dict[str, int] = {}
    for number, group in enumerate(record.groups):
        found = next((lesson for lesson in group.lessons if lesson.item == item), None)
        if found is None:
            earlier[group.query_key] = number
            continue
        before = earlier.get(group.query_key)
        scores = _means(record, number)
        other = _means(record, before) if before is not None else None
        if other is not None:
            gains.append(scores - other)
        uses.append(
            LessonUse(
                group=group.id,
                step=group.step,
                question=group.question,
                question_key=group.query_key,
                own_question=group.query_key == key,
                similarity=found.similarity,
                scores=stage_scores(scores.tolist()),
                before=stage_scores(other.tolist()) if other is not None else StageScores(),
            )
        )
    return uses, stage_scores(mean_of(np.array(gains).reshape(-1, 4), axis=0).tolist()), len(gains)


def _means(record: RunRecordReader, group: int) -> npt.NDArray[np.float64]:
    """Four numbers, a stage each; NaN where there is no score."""
    rows = record.table.of_group(group)
    return mean_of(record.table.rows["scores"][rows].astype(np.float64), axis=0)


class BankFilter(PageFilter):
    """Which items of a bank are wanted."""

    status: ItemStatus | None = None


class BankViews:
    """The views of one bank, with its uses according to the record of one run. Safe under threads.

    The items are listed anew when the bank changes. `recorded` is given for the bank of a record, which cannot be
    changed.
    """

    def __init__(self, bank: ShownBank, record: RunRecordReader, recorded: RecordedBank | None = None) -> None:
        self.bank = bank
        self.is_editable = recorded is None
        self._record = record
        self._recorded = recorded
        self._lock = threading.Lock()
        self._mark: tuple[str, int] | None = None
        self._items: Sequence[BankItem] = ()
        self._counts: Counter[str] = Counter()
        self._folded: Sequence[str] | None = None

    @property
    def note(self) -> str:
        """Why it cannot be changed."""
        return READ_ONLY.format(step=self._recorded.step) if self._recorded is not None else ""

    def _select(self, text: str, status: ItemStatus | None) -> tuple[Counter[str], Sequence[BankItem]]:
        """How many items of each status there are now, and those that contain the text and have the status, newest first."""
        wanted = text.casefold().strip()
        with self._lock:
            mark = self.bank.state_mark
            if mark != self._mark:
                self._items, self._mark, self._folded = self.bank.items()[::-1], mark, None
                self._counts = Counter(item.status for item in self._items)
            if wanted and self._folded is None:
                reflections = (item.reflection for item in self._items)
                self._folded = [f"{one.question}\n{one.rubrics}\n{one.takeaways}".casefold() for one in reflections]
            counts, items, folded = self._counts, self._items, self._folded
        if wanted and folded:
            items = [item for item, words in zip(items, folded, strict=True) if wanted in words]
        return counts, items if status is None else [item for item in items if item.status == status]

    def page(self, wanted: BankFilter) -> BankPage:
        """A page of the items, newest first; `wanted.q` is looked for in question, rubrics and takeaways."""
        counts, matched = self._select(wanted.q, wanted.status)
        uses = self._uses()
        rows = tuple(_row(item, uses[item.id]) for item in matched[wanted.rows])
        return self._page(rows, counts, wanted, matched=len(matched))

    def _page(self, rows: tuple[BankRow, ...], counts: Counter[str], wanted: PageFilter, *, matched: int) -> BankPage:
        return BankPage(
            total=counts.total(),
            matched=matched,
            page=wanted.page,
            size=wanted.size,
            rows=rows,
            counts={one: counts[one] for one in STATUSES},
            editable=self.is_editable,
            note=self.note,
        )

    def search(self, text: str, *, limit: int) -> BankPage:
        """The active items whose questions are most similar.

        Raises:
            UsageError: the bank's embedder is not here.
        """
        uses = self._uses()
        found = self.bank.search(text, limit=limit)
        rows = tuple(_row(hit.item, uses[hit.item.id], hit.similarity) for hit in found)
        counts, _ = self._select("", None)
        return self._page(rows, counts, PageFilter(size=limit), matched=len(rows))

    def item(self, number: int) -> BankItemView:
        """An item whole.

        Raises:
            NotThereError: there is none of that number.
        """
        try:
            item = self.bank.item(number)
        except UsageError as cause:
            raise NotThereError(str(cause)) from cause
        counts = self._uses()
        with self._record.lock:
            uses, gain, num_compared = find_uses(self._record, number, key=item.key)
        reflection, score = item.reflection, item.reflection.score
        return BankItemView(
            row=_row(item, counts[number]),
            rubrics=reflection.rubrics[:MAX_TEXT],
            takeaways=reflection.takeaways[:MAX_TEXT],
            score={name: round(getattr(score, name), 4) for name in SCORE_NAMES} if score is not None else None,
            model=reflection.provenance.model,
            prompt_hash=reflection.provenance.prompt_hash,
            history=tuple(_row(other, counts[other.id]) for other in self.bank.history(item.key)),
            uses=tuple(uses[-MAX_USES:][::-1]),
            compared=num_compared,
            difference=gain,
            editable=self.is_editable,
        )

    def change(self, number: int, change: BankChange) -> BankItemView:
        """Approve, quarantine or remove an item of an editable bank.

        Raises:
            UsageError: there is no such item, or it is not in a state that can change so.
        """
        statuses: dict[str, ItemStatus] = {"approve": "active", "quarantine": "quarantined", "remove": "removed"}
        self.bank.change(number, statuses[change.action], "" if change.action == "approve" else change.reason)
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
