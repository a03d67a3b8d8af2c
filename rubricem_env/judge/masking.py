"""Why a rollout is masked, and what stands in where scoring a stage failed."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.judgement import Judgement, StageScore, Unscored, UnscoredReason

Fallback = Literal["mean", "broadcast"]
"""What a stage gets whose scoring failed in a rollout with a scored answer.

mean: the group's mean of that stage, and advantage 0 there. broadcast: the answer's score, as the paper's text has it;
where the stages' means differ, the failure itself becomes a reward. Where proposing alone failed, nothing stands in:
the stage has no new rubrics.
"""


class GroupScores(NamedTuple):
    """The scores of a group of rollouts of one question, as `assign_credit` takes them."""

    scores: npt.NDArray[np.float64]
    """The scores, of shape (rollouts, stages). A score is 0 where there is none."""
    valid: npt.NDArray[np.bool_]
    """Whether a rollout may enter statistics and loss, of shape (rollouts,)."""
    scored: npt.NDArray[np.bool_]
    """Whether a stage was scored, of shape (rollouts, stages). Where it is False, the group's mean stands in."""


def fill_failed_stages(judgement: Judgement) -> Judgement:
    """The paper's fallback, `broadcast`: the answer's score for each stage whose scoring failed.

    Missing stages and stages without rubrics stay as they are. Nothing changes where the answer itself is missing or
    unscored: the 0 of a missing answer is no judge's score.
    """
    failed = [stage for stage in judgement.stages if _absence(judgement, stage) == "judge_failed"]
    answer = judgement.outcome(judgement.last)
    if not failed or not isinstance(answer, StageScore) or answer.missing:
        return judgement
    return judgement.replaced(dict.fromkeys(failed, StageScore(score=answer.score)))


def is_valid(judgement: Judgement) -> bool:
    """Whether the rollout may enter group statistics and the loss: no scoring failed, or the answer has a score."""
    filled = fill_failed_stages(judgement)
    return not any(_absence(filled, stage) == "judge_failed" for stage in filled.stages)


def _absence(judgement: Judgement, stage: str) -> UnscoredReason | None:
    outcome = judgement.outcome(stage)
    return outcome.reason if isinstance(outcome, Unscored) else None


def group_scores(judgements: Sequence[Judgement], fallback: Fallback = "mean") -> GroupScores:
    """The scores of a group, which rollouts are valid, and which stages of them were scored.

    A missing stage is 0. A stage without rubrics for any rollout is 0 for the whole group, so that it
    drops out of the advantages. Where scoring a stage failed, `fallback` says what stands in; where the judge gave
    the answer no score either, as where there is no answer, the rollout is masked.

    Raises:
        UsageError: the judge was not asked for an answer.
    """
    absences = [_absence(judgement, judgement.last) for judgement in judgements]
    if "not_asked" in absences:
        raise UsageError(
            f"rollout {absences.index('not_asked') + 1} of {len(absences)} has no answer score because "
            "none was requested; "
            "judge the whole group before crediting it."
        )
    valid = np.array([is_valid(judgement) for judgement in judgements], dtype=bool)
    if fallback == "broadcast":
        judgements = [fill_failed_stages(judgement) for judgement in judgements]
    rows = [
        [(judgement.score(stage), _absence(judgement, stage)) for stage in judgement.stages] for judgement in judgements
    ]
    shape = (len(judgements), len(judgements[0].stages) if judgements else len(STAGES))
    scores = np.array([[score or 0.0 for score, _ in row] for row in rows], dtype=np.float64).reshape(shape)
    scored = np.array([[why != "judge_failed" for _, why in row] for row in rows], dtype=bool).reshape(shape)
    for column in range(shape[1]):
        if any(row[column][1] in ("no_rubric", "not_asked") for row in rows):
            scores[:, column] = 0.0
            scored[:, column] = True
    return GroupScores(scores, valid, scored)
