"""The arithmetic of stage scores, in one pure place (paper, section C.3; choices B1-B5).

What a judge says of one rubric: a mark that may be a mean of several, and the reason.

What judging a group yields, as data: kept, resumed from, shown, and handed to the reflection judge.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

from pydantic import Field

from rubricem_env.domain.base import STAGES, Frozen, Stage, Text
from rubricem_env.domain.judgement import (
    Judgement,
    Mark,
    Polarity,
    Rubric,
    StageScore,
    Unscored,
    UnscoredReason,
    Verdict,
)

FULL_MARK = 2
MAX_JUSTIFICATION_CHARS = 1_000


class Opinion(Frozen):
    """One rubric, marked. A single judge gives whole marks; an ensemble's mean may lie between them."""

    rubric_id: Text
    mark: Annotated[float, Field(ge=0.0, le=FULL_MARK)]
    justification: Text = ""
    marks: tuple[Mark, ...] = ()
    """Each member's own mark, where an ensemble gave this opinion."""

    @classmethod
    def whole(cls, rubric_id: str, mark: int, justification: str) -> "Opinion":
        """A single judge's mark; the justification is cut to a length that can be kept."""
        return cls(rubric_id=rubric_id, mark=float(mark), justification=shorten(justification))

    @property
    def spread(self) -> int:
        """How far the members of an ensemble lie apart, in marks."""
        return max(self.marks) - min(self.marks) if self.marks else 0

    def verdict(self) -> Verdict:
        """As a verdict, whose mark is whole: halves round up, and the justification tells the mean."""
        rounded = int(self.mark + 0.5)
        told = self.justification
        if rounded != self.mark:
            told = f"mean {self.mark:.2f} of the marks {', '.join(map(str, self.marks))}: {told}"
        return Verdict(rubric_id=self.rubric_id, score=rounded, justification=told)


def shorten(text: str) -> str:
    """At most `MAX_JUSTIFICATION_CHARS`, with a sign where something is left out."""
    stripped = text.strip()
    return stripped if len(stripped) <= MAX_JUSTIFICATION_CHARS else stripped[: MAX_JUSTIFICATION_CHARS - 1] + "…"


MISSING = StageScore(score=0.0, missing=True)
"""A stage that never happened. Not asked, because avoiding every flaw of an empty stage would be full marks."""


def fulfillment(rubric: Rubric, mark: float) -> float:
    """The mark as a share, t = s/2; a flaw's is inverted, t = 1 - s/2."""
    share = mark / FULL_MARK
    return share if rubric.polarity is Polarity.POSITIVE else 1.0 - share


def score_stage(
    rubrics: Sequence[Rubric], opinions: Mapping[str, Opinion], *, failure: str = ""
) -> StageScore | Unscored:
    """R = sum of w t over sum of w, over the rubrics that have an opinion; `failure` says why none has.

    Without a rubric the stage drops out; with rubrics and not one opinion the judge has failed. Neither is a zero.
    """
    if not rubrics:
        return Unscored(reason=UnscoredReason.NO_RUBRIC)
    scored = [(rubric, opinions[rubric.id]) for rubric in rubrics if rubric.id in opinions]
    if not scored:
        detail = failure or "the judge returned no usable score for this stage"
        return Unscored(reason=UnscoredReason.JUDGE_FAILED, detail=detail)
    # fsum, so that the order of the rubrics cannot show in the last bit.
    total = math.fsum(rubric.weight for rubric, _ in scored)
    gained = math.fsum(rubric.weight * fulfillment(rubric, opinion.mark) for rubric, opinion in scored)
    verdicts = tuple(opinion.verdict() for _, opinion in scored)
    return StageScore(score=min(1.0, max(0.0, gained / total)), verdicts=verdicts)


def score_trajectory(
    present: Iterable[Stage], rubrics: Sequence[Rubric], *, opinions: Mapping[str, Opinion], failure: str = ""
) -> Judgement:
    """Every stage's outcome: scored where it is present, 0 where it is missing."""
    there = set(present)
    return Judgement.of(
        {
            stage: score_stage([rubric for rubric in rubrics if rubric.stage is stage], opinions, failure=failure)
            if stage in there
            else MISSING
            for stage in STAGES
        }
    )


def broadcast_answer(judged: Judgement, answer: StageScore) -> Judgement:
    """The fallback: the answer's score stands for every stage that is there, so that returns keep their scale.

    A stage without rubrics stays without a score: nobody of the group has one.
    """
    borrowed = StageScore(score=answer.score)
    outcomes = {stage: judged.outcome(stage) for stage in STAGES}
    lent = {stage: outcome if _has_none(outcome) else borrowed for stage, outcome in outcomes.items()}
    return Judgement.of({**lent, Stage.ANSWER: answer})


def _has_none(outcome: StageScore | Unscored) -> bool:
    """Whether the stage is missing, or has no rubrics."""
    if isinstance(outcome, StageScore):
        return outcome.missing
    return outcome.reason is UnscoredReason.NO_RUBRIC


def mark_variance(marks: Sequence[float]) -> float:
    """How well a rubric separates a group: the population variance of its marks, exactly 0.0 where all agree."""
    if not marks or min(marks) == max(marks):
        return 0.0
    mean = math.fsum(marks) / len(marks)
    return math.fsum((mark - mean) ** 2 for mark in marks) / len(marks)


class RolloutJudgement(Frozen):
    """One trajectory's outcome, with everything that it rests on."""

    judgement: Judgement
    opinions: tuple[Opinion, ...] = ()
    is_answer_only: bool = False
    """Every stage has the answer's score: the full call failed (choice B7)."""
    failure: Text = ""
    prompt_hash: Text = ""
    """Of the scoring prompt; empty where no model was asked."""
    bait: tuple[Text, ...] = ()
    """Kinds of text in the trajectory that speak to the judge. A feature to watch, without effect on the score."""

    @property
    def is_valid(self) -> bool:
        """Whether it may enter group statistics and the loss: no stage of it was lost to a judge failure."""
        outcomes = [self.judgement.outcome(stage) for stage in STAGES]
        return not any(isinstance(o, Unscored) and o.reason is UnscoredReason.JUDGE_FAILED for o in outcomes)


class GroupJudgement(Frozen):
    """All trajectories of one question in one step."""

    query_key: Text
    step: int
    fingerprint: Text
    """Of the trajectories that were judged, so that a resumed step cannot take another group's scores."""
    judge: Text = ""
    """The judge's name."""
    rubrics: tuple[Rubric, ...]
    """All that the group was marked by, in use or retired since."""
    rollouts: tuple[RolloutJudgement, ...]
    proposal_failure: Text = ""
    """Why there are no new rubrics, where that was not the judge's wish."""
    refused: tuple[Text, ...] = ()
    """Proposals that were not let in, with the reasons."""

    @property
    def judgements(self) -> tuple[Judgement, ...]:
        return tuple(rollout.judgement for rollout in self.rollouts)

    @property
    def failures(self) -> int:
        """Rollouts that have no valid score."""
        return sum(not rollout.is_valid for rollout in self.rollouts)
