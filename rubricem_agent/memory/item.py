"""One item of the rubric bank: a reflection with its number, its standing and where it came from."""

import hashlib
import unicodedata
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.reflection import Reflection


class ItemStatus(StrEnum):
    """Whether an item may be shown to a policy. Only an active one may."""

    ACTIVE = "active"
    QUARANTINED = "quarantined"
    """Held back until a person approves or removes it."""
    SUPERSEDED = "superseded"
    """A later reflection on the same question took its place; kept as history."""
    REMOVED = "removed"
    """A tombstone: its text is refused when it comes again."""


class BankItem(Frozen):
    """A reflection as the bank keeps it. The reflection's provenance says which step, model and prompt wrote it."""

    id: Annotated[int, Field(ge=1)]
    """Given in order of writing and never given twice: a smaller one is older."""
    revision: Annotated[int, Field(ge=1)]
    """The bank's write that last touched this item."""
    reflection: Reflection
    status: ItemStatus = ItemStatus.ACTIVE
    reason: Text = ""
    """Why it is quarantined or removed."""

    @property
    def key(self) -> str:
        return self.reflection.query_key

    @property
    def is_retrievable(self) -> bool:
        return self.status is ItemStatus.ACTIVE


def text_digest(reflection: Reflection) -> str:
    """Equal for reflections that say the same: case, spacing and Unicode form do not count."""
    said = unicodedata.normalize("NFKC", f"{reflection.rubrics}\0{reflection.takeaways}").casefold()
    return hashlib.sha256(" ".join(said.split()).encode("utf-8", "replace")).hexdigest()
