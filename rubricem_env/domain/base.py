"""The base of all domain types: frozen, no unknown fields, no NaN, no broken text."""

import re
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
REPLACEMENT = "\ufffd"


def well_formed(text: object) -> object:
    """The same text with each lone surrogate replaced by U+FFFD, one for one, so that offsets still hold.

    A lone surrogate has no UTF-8 form: it could be neither saved, hashed nor sent.
    """
    if isinstance(text, str) and not text.isascii() and _LONE_SURROGATE.search(text):
        return _LONE_SURROGATE.sub(REPLACEMENT, text)
    return text


Text = Annotated[str, BeforeValidator(well_formed)]
"""Any text that can be written as UTF-8."""

UnitScore = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
"""A score between 0 and 1, both included."""


class Frozen(BaseModel):
    """A value: compares by content, cannot be changed, refuses fields that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)
