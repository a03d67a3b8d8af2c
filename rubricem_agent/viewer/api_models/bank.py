"""The rubric bank."""

from typing import Annotated, Literal

from pydantic import Field

from rubricem_agent.viewer.api_models.runs import StageScores
from rubricem_env.domain.base import Frozen, Text

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


class BankPage(Frozen):
    total: int
    matched: int
    page: int
    size: int
    rows: tuple[BankRow, ...]
    counts: dict[str, int]
    """By status."""
    embedder: Text
    editable: bool
    note: Text
    """Why it cannot be edited, or as of which step it is shown; empty where there is nothing to say."""


class BankSearch(Frozen):
    rows: tuple[BankRow, ...]
    """Most similar first; active items alone, as a policy would find them."""


class LessonScore(Frozen):
    """By the reflection judge."""

    diagnosis: float
    specificity: float
    scope: float
    within: float
    cross: float
    utility: float


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


class LessonEffect(Frozen):
    """Scores with the item less those of the same questions before it; a hint, since the policy learns meanwhile."""

    groups: int
    """That have a group before them to compare with."""
    difference: StageScores


class BankItemView(Frozen):
    row: BankRow
    rubrics: Text
    takeaways: Text
    score: LessonScore | None
    model: Text
    prompt_hash: Text
    history: tuple[BankRow, ...]
    """All items of the question, oldest first."""
    uses: tuple[LessonUse, ...]
    """The latest 100."""
    effect: LessonEffect
    editable: bool


class BankChange(Frozen):
    """The body of a POST."""

    action: Literal["approve", "quarantine", "remove"]
    reason: Annotated[Text, Field(max_length=500)] = ""
