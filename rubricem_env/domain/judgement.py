"""What a judge says of a trajectory: verdicts on rubrics, and a score, or the reason why there is none, for each stage."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from rubricem_env.domain.base import Frozen, Text, UnitScore
from rubricem_env.domain.stage import STAGES, Stage

Mark = Annotated[int, Field(strict=True, ge=0, le=2)]
"""0 absent, 1 partial, 2 full. Strict: True and 1.0 are refused, which Literal[0, 1, 2] would let in."""


class Verdict(Frozen):
    """How far one trajectory fulfils one rubric, and why."""

    rubric_id: Text
    score: Mark
    justification: Text = ""


class StageScore(Frozen):
    """The score of one stage, between 0 and 1."""

    kind: Literal["score"] = "score"
    score: UnitScore
    verdicts: tuple[Verdict, ...] = ()
    missing: bool = False
    """The stage never happened: 0 without asking the judge."""


class UnscoredReason(StrEnum):
    """Why a stage has no score. None of these is a zero."""

    NO_RUBRIC = "no_rubric"
    """Nothing to score by: the stage drops out of the advantages."""
    JUDGE_FAILED = "judge_failed"
    """The judge could not be reached, or its replies were unusable."""
    NOT_ASKED = "not_asked"
    """No scorer was given, or this stage was not to be scored yet."""


class Unscored(Frozen):
    """The absence of a score, with its reason."""

    kind: Literal["unscored"] = "unscored"
    reason: UnscoredReason
    detail: Text = ""


StageOutcome = Annotated[StageScore | Unscored, Field(discriminator="kind")]


class Judgement(Frozen):
    """The outcome of every stage of one trajectory."""

    plan: StageOutcome
    research: StageOutcome
    review: StageOutcome
    answer: StageOutcome

    @classmethod
    def of(cls, outcomes: Mapping[Stage, StageScore | Unscored]) -> "Judgement":
        """A judgement from outcomes by stage; a stage that is not given was not asked for."""
        absent = Unscored(reason=UnscoredReason.NOT_ASKED)
        return cls(**{stage.value: outcomes.get(stage, absent) for stage in STAGES})

    def outcome(self, stage: Stage) -> StageScore | Unscored:
        outcomes: tuple[StageScore | Unscored, ...] = (self.plan, self.research, self.review, self.answer)
        return outcomes[stage.position]

    def score(self, stage: Stage) -> float | None:
        """The number, or None where there is none: for arithmetic that must tell zero from absence."""
        outcome = self.outcome(stage)
        return outcome.score if isinstance(outcome, StageScore) else None
