"""A bank as the API tells it: pages, a search, and an item with what it did in a run."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.item import BankItem, ItemStatus
from rubricem_agent.viewer.api_models.bank import (
    BankChange,
    BankItemView,
    BankPage,
    BankRow,
    BankSearch,
    LessonEffect,
    LessonScore,
    LessonUse,
)
from rubricem_agent.viewer.api_models.runs import StageScores
from rubricem_agent.viewer.bank_listing import BankListing
from rubricem_agent.viewer.lesson_uses import Use, find_uses, mean_difference
from rubricem_agent.viewer.problems import NotAllowedError
from rubricem_agent.viewer.rows import number_or_none, stage_scores
from rubricem_agent.viewer.run_record_reader import RunRecordReader

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
