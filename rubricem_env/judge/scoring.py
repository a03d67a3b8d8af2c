"""The score of a stage: the weighted mean of its rubric scores (paper, section C.3)."""

import math
from collections.abc import Iterable, Mapping, Sequence

from rubricem_env.domain.base import STAGES
from rubricem_env.domain.judgement import Judgement, Rubric, RubricScore, StageScore, Unscored
from rubricem_env.domain.scale import FULL_SCORE

MISSING = StageScore(score=0.0, missing=True)
"""The score of a stage that never happened. No judge is asked: an empty stage avoids every flaw and would score 1."""


def fulfillment(rubric: Rubric, score: float) -> float:
    """The score as a share, t = s/2; a flaw's is inverted, t = 1 - s/2."""
    share = score / FULL_SCORE
    return share if rubric.polarity == "positive" else 1.0 - share


def score_stage(
    rubrics: Sequence[Rubric],
    rubric_scores: Mapping[str, RubricScore],
    *,
    failure: str = "",
) -> StageScore | Unscored:
    """R = sum of w t over sum of w, over the rubrics that the judge scored; `failure` says why it scored fewer.

    A stage without rubrics is unscored. So is one with rubrics of which none was scored, or only some because of a
    failure: the judge failed. None of these is 0. A judge that leaves a rubric out on purpose, such as the almanac's
    one without a truth, reports no failure.
    """
    if not rubrics:
        return Unscored(reason="no_rubric")
    scored = [(rubric, rubric_scores[rubric.id]) for rubric in rubrics if rubric.id in rubric_scores]
    if not scored or (failure and len(scored) < len(rubrics)):
        detail = failure or "the judge returned no usable score for this stage"
        return Unscored(reason="judge_failed", detail=detail)
    # fsum makes the result independent of the order of the rubrics.
    total = math.fsum(rubric.weight for rubric, _ in scored)
    gained = math.fsum(rubric.weight * fulfillment(rubric, score.score) for rubric, score in scored)
    stage_score = min(1.0, max(0.0, gained / total))
    return StageScore(score=stage_score, rubric_scores=tuple(score for _, score in scored))


def score_trajectory(
    present: Iterable[str],
    rubrics: Sequence[Rubric],
    *,
    rubric_scores: Mapping[str, RubricScore],
    failure: str = "",
    proposal_failure: str = "",
    stages: Sequence[str] = STAGES,
) -> Judgement:
    """Every stage's outcome: scored where it is present, 0 where it is missing.

    Where proposing failed there are no new rubrics (paper, section C.4): a stage without older ones has no rubric. With
    no rubric at any stage there is nothing to score by, and the judge failed.
    """
    outcomes: dict[str, StageScore | Unscored] = dict.fromkeys(map(str, stages), MISSING)
    unproposed = Unscored(
        reason="no_rubric" if rubrics else "judge_failed", detail=f"no rubric could be proposed: {proposal_failure}"
    )
    for stage in present:
        own = [rubric for rubric in rubrics if rubric.stage == stage]
        is_unproposed = not own and proposal_failure
        outcomes[stage] = unproposed if is_unproposed else score_stage(own, rubric_scores, failure=failure)
    return Judgement.of(outcomes, stages)
