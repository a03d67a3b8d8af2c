"""The named ways of running a benchmark. A mode pins everything that moves a number, and stands beside every number.

official   what the benchmark's own scorer does
drtulu     what the predecessor did, whose protocol the paper says that it shares
strict     as official, with readings that take no quirk for a verdict, and every failure as the worst case
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from rubricem_env.domain.base import Frozen, Text


class Mode(StrEnum):
    """A protocol by name."""

    OFFICIAL = "official"
    DRTULU = "drtulu"
    STRICT = "strict"


class Sampling(StrEnum):
    """By which published rule a subset is drawn."""

    SIMPLE_EVALS = "simple_evals"
    """A sample with seed 0."""
    DRTULU = "drtulu"
    """All rows shuffled with seed 42, then the first ones."""
    FIRST = "first"
    """The first rows of the file."""


class Citations(StrEnum):
    """What becomes of cite tags in the text that is judged."""

    KEPT = "kept"
    DROPPED = "dropped"
    """The claim stays, the tag goes."""
    NUMBERED = "numbered"
    """The claim with [n], and a list of references at the end."""


class Extraction(StrEnum):
    """How the answer is found in what the policy wrote."""

    ANSWER_TAG = "answer_tag"
    """Inside the answer tags; the content of a box in it for exact answers, with its braces balanced."""
    PREDECESSOR = "predecessor"
    """As the predecessor does: the first box even in a report, cut at its first closing brace."""


class Rules(Frozen):
    """All that a mode pins for one benchmark."""

    mode: Mode
    judge: Text
    """The model that the published numbers were made with; empty where nothing is judged by a model."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    max_output_tokens: Annotated[int, Field(ge=1)] = 2048
    tries: Annotated[int, Field(ge=1)] = 3
    """Replies asked for before one counts as unreadable."""
    batch_size: Annotated[int, Field(ge=1)] = 1
    clips_mean: bool = False
    sampling: Sampling = Sampling.FIRST
    citations: Citations = Citations.DROPPED
    extraction: Extraction = Extraction.ANSWER_TAG

    @property
    def is_strict(self) -> bool:
        return self.mode is Mode.STRICT
