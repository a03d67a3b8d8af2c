"""The base of all domain types (frozen, no unknown fields, no NaN, valid Unicode), names of stages, spans of text."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
REPLACEMENT = "\ufffd"


def well_formed(text: object) -> object:
    """The same text with each lone surrogate replaced by U+FFFD, one for one, so that offsets stay valid.

    A lone surrogate has no UTF-8 form: it could be neither saved, hashed nor sent.
    """
    if isinstance(text, str) and not text.isascii() and _LONE_SURROGATE.search(text):
        return _LONE_SURROGATE.sub(REPLACEMENT, text)
    return text


Text = Annotated[str, BeforeValidator(well_formed)]
"""Any text that can be written as UTF-8."""

Count = Annotated[int, Field(ge=0)]
"""A number of things, which may be none."""

PositiveCount = Annotated[int, Field(ge=1)]
"""A number of things, at least one."""

UnitScore = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
"""A score between 0 and 1, both included."""


class Frozen(BaseModel):
    """A value: compares by content, cannot be changed, refuses fields that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)


StageName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
"""The name of a stage: lower-case letters, digits and underscores."""

MAX_STAGES = 8


class Stage(StrEnum):
    """The name of a stage of deep research, in order (paper, section 3.2)."""

    PLAN = "plan"
    RESEARCH = "research"
    REVIEW = "review"
    ANSWER = "answer"

    @property
    def position(self) -> int:
        """Its index in the order, from 0; the row of the stage matrix."""
        return STAGES.index(self)


STAGES: tuple[Stage, ...] = tuple(Stage)
NUM_STAGES = len(STAGES)


class Span(NamedTuple):
    """Characters [start, end) of a text."""

    start: int
    end: int

    def of(self, text: str) -> str:
        """The text that the span covers."""
        return text[self.start : self.end]


StageSpans = Mapping[str, Span]
"""The span of each stage in the policy's text; a stage that never happened has none. Every character is in one span."""
