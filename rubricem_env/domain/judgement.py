"""Rubrics, and the judge's scores of a trajectory and of its stages.

A stage has a score or the reason for its absence.
"""

import hashlib
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, RootModel

from rubricem_env.domain.base import MAX_STAGES, STAGES, Frozen, StageName, Text, UnitScore
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.scale import FULL_SCORE, Score

Polarity = Literal["positive", "negative"]
"""Whether a rubric names a quality or a flaw; a flaw's score is inverted when it is counted."""


class Provenance(Frozen):
    """Who wrote a rubric or a reflection, and when."""

    step: int = 0
    """Training step; 0 outside training."""
    model: Text = ""
    prompt_hash: Text = ""


class Rubric(Frozen):
    """A named criterion for one stage, worth `weight` in that stage's average."""

    stage: StageName
    title: Text
    description: Text
    polarity: Polarity = "positive"
    weight: Annotated[float, Field(gt=0.0)] = 1.0
    """Active rubrics: 1 minor, 2 important, 3 critical. Persistent ones keep the magnitude of their data set."""
    persistent: bool = False
    provenance: Provenance = Provenance()

    @property
    def id(self) -> str:
        """Same stage, polarity and wording, same rubric: whitespace, case and Unicode form do not count."""
        return _rubric_id(self.stage, self.polarity, self.description)

    @property
    def wording(self) -> str:
        """The description without differences of whitespace, case and Unicode form."""
        return _wording(self.description)


@lru_cache(maxsize=16_384)
def _wording(description: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", description).casefold().split())


@lru_cache(maxsize=16_384)
def _rubric_id(stage: str, polarity: Polarity, description: str) -> str:
    return hashlib.sha256(f"{stage}\0{polarity}\0{_wording(description)}".encode()).hexdigest()[:16]


class RubricScore(Frozen):
    """A judge's score of one trajectory on one rubric, with the reason.

    A single judge gives 0, 1 or 2; an ensemble's mean may lie between them.
    """

    rubric_id: Text
    score: Annotated[float, Field(ge=0.0, le=FULL_SCORE)]
    justification: Text = ""
    scores: tuple[Score, ...] = ()
    """The score of each member of an ensemble; empty for a single judge."""

    @classmethod
    def whole(cls, rubric_id: str, score: int, justification: str) -> "RubricScore":
        """A single judge's score; the justification is truncated."""
        return cls(rubric_id=rubric_id, score=float(score), justification=shorten(justification))

    @property
    def rounded(self) -> int:
        """The nearest whole score; halves round up."""
        return int(self.score + 0.5)

    @property
    def spread(self) -> int:
        """The highest minus the lowest score of an ensemble's members."""
        return max(self.scores) - min(self.scores) if self.scores else 0


MAX_JUSTIFICATION_CHARS = 1_000


def shorten(text: str) -> str:
    """At most `MAX_JUSTIFICATION_CHARS` characters, with an ellipsis where the text was truncated."""
    stripped = text.strip()
    return stripped if len(stripped) <= MAX_JUSTIFICATION_CHARS else stripped[: MAX_JUSTIFICATION_CHARS - 1] + "…"


class StageScore(Frozen):
    """The score of one stage, between 0 and 1."""

    kind: Literal["score"] = "score"
    score: UnitScore
    rubric_scores: tuple[RubricScore, ...] = ()
    missing: bool = False
    """The stage never happened: its score is 0, without a call of the judge."""


UnscoredReason = Literal["no_rubric", "judge_failed", "not_asked"]
"""Why a stage has no score; an unscored stage is not a zero.

no_rubric: the stage is left out of the advantages. judge_failed: the judge could not be reached, or its replies were
unusable. not_asked: there was no scorer, or this stage was not due yet.
"""


class Unscored(Frozen):
    """The absence of a score, with its reason."""

    kind: Literal["unscored"] = "unscored"
    reason: UnscoredReason
    detail: Text = ""


StageOutcome = Annotated[StageScore | Unscored, Field(discriminator="kind")]


def _of_stages(outcomes: dict[str, StageScore | Unscored]) -> dict[str, StageScore | Unscored]:
    if not 1 <= len(outcomes) <= MAX_STAGES:
        raise ValueError(f"a judgement has an outcome for each stage, at most {MAX_STAGES}; it has {len(outcomes)}")
    return outcomes


class Judgement(RootModel[Annotated[dict[StageName, StageOutcome], AfterValidator(_of_stages)]]):
    """The outcome of every stage of one trajectory, in the order of the stages."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, strict=True)

    @classmethod
    def of(cls, outcomes: Mapping[str, StageScore | Unscored], stages: Sequence[str] = STAGES) -> "Judgement":
        """A judgement from outcomes by stage; a missing stage is recorded as not asked.

        Raises:
            UsageError: an outcome is of no stage.
        """
        unknown = next((stage for stage in outcomes if stage not in stages), None)
        if unknown is not None:
            raise UsageError(f"an outcome is of the stage {str(unknown)!r}; the stages are {', '.join(stages)}.")
        absent = Unscored(reason="not_asked")
        return cls({str(stage): outcomes.get(stage, absent) for stage in stages})

    def __hash__(self) -> int:
        return hash(tuple(self.root.items()))

    @property
    def stages(self) -> tuple[str, ...]:
        """The names of the stages, in order."""
        return tuple(self.root)

    @property
    def last(self) -> str:
        """The stage of the answer."""
        return self.stages[-1]

    def outcome(self, stage: str) -> StageScore | Unscored:
        return self.root[stage]

    def replaced(self, outcomes: Mapping[str, StageScore | Unscored]) -> "Judgement":
        """The same with other outcomes of some stages."""
        return Judgement({**self.root, **outcomes})

    def score(self, stage: str) -> float | None:
        """The score, or None if the stage is unscored."""
        outcome = self.root[stage]
        return outcome.score if isinstance(outcome, StageScore) else None

    @property
    def scores(self) -> tuple[float | None, ...]:
        """The score of each stage."""
        return tuple(map(self.score, self.root))
