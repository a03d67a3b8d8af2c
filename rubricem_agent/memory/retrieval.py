"""How the bank is asked, and what it answers."""

from enum import StrEnum
from typing import Annotated, NamedTuple

from pydantic import Field

from rubricem_agent.memory.item import BankItem
from rubricem_env.domain.base import Frozen


class Retrieval(StrEnum):
    """Which lessons are looked for."""

    CROSS = "cross"
    """Those of other, similar questions."""
    WITHIN = "within"
    """The question's own."""


class RetrievalSettings(Frozen):
    """The defaults are the paper's, and choice C12's."""

    top_k: Annotated[int, Field(ge=1)] = 2
    """Of CROSS retrieval; WITHIN has one item at most."""
    near_duplicate: Annotated[float, Field(gt=0.0, le=1.01)] = 0.98
    """Questions at least this similar are taken for the same one and left out of CROSS; above 1 none is."""


class Retrieved(NamedTuple):
    """An item with the cosine of its question to the one asked; 1.0 for the question's own."""

    item: BankItem
    similarity: float

    @property
    def rank(self) -> tuple[float, str]:
        """The most similar first; of equals the lesser key, since numbers tell only who happened to be written first."""
        return -self.similarity, self.item.key
