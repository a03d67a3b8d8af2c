"""The arithmetic of stage scores, in one pure place (paper, section C.3; choices B1-B5)."""

import math
from collections.abc import Iterable, Mapping, Sequence

from rubricem_env.domain.judgement import Judgement, StageScore, Unscored, UnscoredReason
from rubricem_env.domain.rubric import Polarity, Rubric
from rubricem_env.domain.stage import STAGES, Stage
from rubricem_env.judge.opinion import FULL_MARK, Opinion

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
