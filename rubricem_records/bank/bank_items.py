"""The items of a rubric bank as they are stored."""

from typing import Annotated, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
from pydantic import Field

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.reflection import Reflection

ItemStatus = Literal[
    "active",
    "quarantined",  # withheld until a person approves or removes it
    "superseded",  # replaced by a later reflection on the same question; stored as history
    "removed",  # a tombstone: its text is refused if it is written again
]
"""Only an active item may be shown to a policy."""

STATUSES: tuple[ItemStatus, ...] = get_args(ItemStatus)


class BankItem(Frozen):
    """A reflection in the bank. Its provenance says which step, model and prompt wrote it."""

    id: Annotated[int, Field(ge=1)]
    """Assigned in order of writing and never reused: a smaller one is older."""
    revision: Annotated[int, Field(ge=1)]
    """The bank's write that last touched this item."""
    reflection: Reflection
    status: ItemStatus = "active"
    reason: Text = ""
    """Why it is quarantined or removed."""

    @property
    def key(self) -> str:
        return self.reflection.query_key

    @property
    def is_retrievable(self) -> bool:
        return self.status == "active"


class StoredItem(NamedTuple):
    """An item and the vector of its question."""

    item: BankItem
    vector: npt.NDArray[np.float32]


class Retrieved(NamedTuple):
    """An item with the cosine of its question to the one asked; 1.0 for the question's own."""

    item: BankItem
    similarity: float
