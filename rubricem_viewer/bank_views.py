"""Views of a bank: pages, a search, and an item with its uses."""

import threading
from collections import Counter
from collections.abc import Sequence

from rubricem_env.domain.errors import UsageError
from rubricem_records.bank.bank_items import STATUSES, BankItem, ItemStatus
from rubricem_viewer.api.lessons import BankChange, BankItemView, BankPage, BankRow
from rubricem_viewer.filters import PageFilter
from rubricem_viewer.lesson_uses import find_uses
from rubricem_viewer.record_reader import RunRecordReader
from rubricem_viewer.recorded_bank import RecordedBank
from rubricem_viewer.refusals import NotThereError
from rubricem_viewer.shown_bank import ShownBank
from rubricem_viewer.shown_numbers import number_or_none

MAX_TEXT = 20_000

MAX_QUESTION = 500

MAX_USES = 100

SCORE_NAMES = ("diagnosis", "specificity", "scope", "within", "cross", "utility")

READ_ONLY = (
    "This is the bank as the run has recorded it, as of step {step}; the run itself holds it in memory, so it cannot "
    "be changed from here."
)


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
        """How many items each status has now, and the items that contain the text and have the status, newest first."""
        wanted = text.casefold().strip()
        with self._lock:
            mark = self.bank.state_mark
            if mark != self._mark:
                self._items = self.bank.items()[::-1]
                self._mark = mark
                self._folded = None
                self._counts = Counter(item.status for item in self._items)
            if wanted and self._folded is None:
                reflections = (item.reflection for item in self._items)
                self._folded = [
                    f"{reflection.question}\n{reflection.rubrics}\n{reflection.takeaways}".casefold()
                    for reflection in reflections
                ]
            counts = self._counts
            items = self._items
            folded = self._folded
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
            counts={status: counts[status] for status in STATUSES},
            editable=self.is_editable,
            note=self.note,
        )

    def search(self, text: str, *, limit: int) -> BankPage:
        """The active items whose questions are most similar.

        Raises:
            UsageError: the bank's embedder is not here.
        """
        uses = self._uses()
        hits = self.bank.search(text, limit=limit)
        rows = tuple(_row(hit.item, uses[hit.item.id], hit.similarity) for hit in hits)
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
        reflection = item.reflection
        score = reflection.score
        return BankItemView(
            row=_row(item, counts[number]),
            rubrics=reflection.rubrics[:MAX_TEXT],
            takeaways=reflection.takeaways[:MAX_TEXT],
            score={name: round(getattr(score, name), 4) for name in SCORE_NAMES} if score is not None else None,
            model=reflection.provenance.model,
            prompt_hash=reflection.provenance.prompt_hash,
            origin=item.origin,
            decided_by_person=item.decided_by_person,
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
        effect=item.effect,
        question=item.reflection.question[:MAX_QUESTION],
        question_key=item.key,
        step=item.reflection.provenance.step,
        utility=number_or_none(score.utility) if score else None,
        uses=uses,
        similarity=number_or_none(similarity),
    )
