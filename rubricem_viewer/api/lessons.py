"""What the server says of a bank and its items."""

from typing import Annotated, Literal

from pydantic import Field

from rubricem_env.domain.base import Frozen, Text
from rubricem_records.bank.bank_items import ItemStatus, LessonEffect, LessonOrigin
from rubricem_viewer.api.pages import Page
from rubricem_viewer.api.scores import StageScores


class BankRow(Frozen):
    """An item in a list."""

    id: int
    status: ItemStatus
    reason: Text
    effect: LessonEffect
    """What showing it did to scores; its weight is 0 where that was not measured."""
    question: Text
    question_key: Text
    step: int
    utility: float | None
    uses: int
    """The number of groups of this run whose prompts showed the lesson."""
    similarity: float | None = None
    """The similarity to the text that was searched for; null outside a search."""


class BankPage(Page[BankRow]):
    """A search gives one page of active items, most similar first, as a policy would find them."""

    counts: dict[str, int]
    """The number of items by status."""
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
    """The scores of the same question's latest group before, without the item; null where there is none."""


class BankItemView(Frozen):
    row: BankRow
    rubrics: Text
    takeaways: Text
    score: dict[str, float] | None
    """The scores by the reflection judge: diagnosis, specificity, scope, within, cross and utility."""
    model: Text
    prompt_hash: Text
    origin: LessonOrigin
    decided_by_person: bool
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
