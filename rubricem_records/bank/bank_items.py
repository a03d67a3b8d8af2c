"""The items of a rubric bank as they are stored."""

from typing import Annotated, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
from pydantic import Field

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.reflection import Reflection

ItemStatus = Literal[
    "active",
    "probation",  # shown to a share of the attempts until its effect on their scores is known
    "quarantined",  # withheld until a person approves or removes it
    "superseded",  # replaced by a later reflection on the same question; stored as history
    "removed",  # a tombstone: its text is refused if it is written again
]
"""An active item may be shown to any attempt, one on probation to a bounded share of them, any other to none."""

STATUSES: tuple[ItemStatus, ...] = get_args(ItemStatus)

ShownStatus = Literal["active", "probation"]
"""The statuses in which an item may be shown."""
SHOWN: tuple[ShownStatus, ...] = get_args(ShownStatus)


class LessonEffect(Frozen):
    """What showing an item did to the scores of attempts, by comparison within groups of attempts at one question.

    Attempts that saw it are compared with attempts of the same group that saw the same other items and not this one.
    """

    shown: Annotated[int, Field(ge=0)] = 0
    """Scored attempts that saw it and have others to compare them with."""
    unshown: Annotated[int, Field(ge=0)] = 0
    """The attempts that these were compared with."""
    questions: tuple[Text, ...] = ()
    """The keys of the questions that were compared."""
    weight: float = 0.0
    """Of all comparisons together; one of n attempts with m others weighs n m / (n + m)."""
    gain: float = 0.0
    """The sum of the differences of mean scores, each times its weight."""
    squares: float = 0.0
    """The sum of squared deviations of the scores from the mean of their side."""
    freedom: Annotated[int, Field(ge=0)] = 0
    """The degrees of freedom of `squares`."""
    mean: float = 0.0
    """The estimated effect on a score from 0 to 1, shrunk towards none."""
    low: float = 0.0
    """The lower end of the interval of the effect."""
    high: float = 0.0


class LessonOrigin(Frozen):
    """The attempt that an item was learnt from, and where the content words of its text stand in that attempt."""

    attempt: Annotated[int, Field(ge=0)] | None = None
    """The attempt's index in its group; None outside training."""
    fingerprint: Text = ""
    """The hash of the attempt's text."""
    words: Annotated[int, Field(ge=0)] = 0
    """Different content words of rubrics and takeaways."""
    from_question: Annotated[int, Field(ge=0)] = 0
    """Of these, words of the question."""
    from_policy: Annotated[int, Field(ge=0)] = 0
    """Words that the policy wrote in the attempt, and that are not in the question."""
    from_pages: Annotated[int, Field(ge=0)] = 0
    """Words that only tool text has."""
    page_words: tuple[Text, ...] = ()
    """The first of the words that only tool text has."""


class BankItem(Frozen):
    """A reflection in the bank. Its provenance says which step, model and prompt wrote it."""

    id: Annotated[int, Field(ge=1)]
    """Assigned in order of writing and never reused: a smaller one is older."""
    revision: Annotated[int, Field(ge=1)]
    """The bank's write that last touched this item."""
    reflection: Reflection
    status: ItemStatus = "active"
    reason: Text = ""
    """Why it has this status."""
    decided_by_person: bool = False
    """A person has given it its status: neither its effect nor its age changes that."""
    effect: LessonEffect = LessonEffect()
    origin: LessonOrigin = LessonOrigin()

    @property
    def key(self) -> str:
        return self.reflection.query_key

    @property
    def is_active(self) -> bool:
        return self.status == "active"


class StoredItem(NamedTuple):
    """An item and the vector of its question."""

    item: BankItem
    vector: npt.NDArray[np.float32]


class Retrieved(NamedTuple):
    """An item with the cosine of its question to the one asked; 1.0 for the question's own."""

    item: BankItem
    similarity: float
