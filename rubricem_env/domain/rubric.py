"""One criterion of the judge."""

import hashlib
import unicodedata
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.stage import Stage


class Polarity(StrEnum):
    """Whether a rubric names a quality or a flaw; a flaw's score is inverted when it is counted."""

    POSITIVE = "positive"
    NEGATIVE = "negative"


class Provenance(Frozen):
    """Who wrote a rubric or a reflection, and when."""

    step: int = 0
    """Training step; 0 outside training."""
    model: Text = ""
    prompt_hash: Text = ""


class Rubric(Frozen):
    """A named criterion for one stage, worth `weight` in that stage's average."""

    stage: Stage
    title: Text
    description: Text
    polarity: Polarity = Polarity.POSITIVE
    weight: Annotated[float, Field(gt=0.0)] = 1.0
    """Active rubrics: 1 minor, 2 important, 3 critical. Persistent ones keep the magnitude of their data set."""
    persistent: bool = False
    provenance: Provenance = Provenance()

    @property
    def id(self) -> str:
        """Same stage, polarity and wording, same rubric: whitespace, case and Unicode form do not count."""
        wording = " ".join(unicodedata.normalize("NFKC", self.description).casefold().split())
        return hashlib.sha256(f"{self.stage}\0{self.polarity}\0{wording}".encode()).hexdigest()[:16]
