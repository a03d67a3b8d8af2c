"""The scores of one group as an array: how a judge's outcomes, and their absences, become numbers for credit."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rubricem_agent.learn.credit import Bools, Floats
from rubricem_env.domain.errors import OrderError
from rubricem_env.domain.judgement import Judgement, StageScore, Unscored, UnscoredReason
from rubricem_env.domain.stage import STAGES, Stage

_CONSTANT = (UnscoredReason.NO_RUBRIC, UnscoredReason.NOT_ASKED)


class GroupScores(NamedTuple):
    """What `assign_credit` takes for one group."""

    scores: Floats
    """(rollouts, stages)."""
    valid: Bools
    """(rollouts,): False where the judge failed and left nothing to fall back on."""


def group_scores(judgements: Sequence[Judgement]) -> GroupScores:
    """The scores of a group of rollouts of one question.

    A missing stage is 0 (choice B3). A stage without rubrics for any rollout is 0 for the whole group, so that it
    drops out of the advantages (B4). Where scoring a stage failed, the answer's score stands in for it; where the
    judge gave the answer none either, as where there is no answer, the rollout is masked (B7).

    Raises:
        OrderError: the judge was not asked for an answer.
    """
    _refuse_unasked(judgements)
    scores = np.array([[_number(judgement, stage) for stage in STAGES] for judgement in judgements], dtype=np.float64)
    scores = scores.reshape(len(judgements), len(STAGES))
    for stage in STAGES:
        if any(_absence(judgement, stage) in _CONSTANT for judgement in judgements):
            scores[:, stage.position] = 0.0
    return GroupScores(scores, np.array([_is_valid(judgement) for judgement in judgements], dtype=bool))


def _number(judgement: Judgement, stage: Stage) -> float:
    """The stage's score; the answer's where scoring it failed; 0 where there is neither."""
    score = judgement.score(stage)
    if score is None and _absence(judgement, stage) is UnscoredReason.JUDGE_FAILED:
        score = _fallback(judgement)
    return 0.0 if score is None else score


def _is_valid(judgement: Judgement) -> bool:
    has_failed = any(_absence(judgement, stage) is UnscoredReason.JUDGE_FAILED for stage in STAGES)
    return not has_failed or _fallback(judgement) is not None


def _fallback(judgement: Judgement) -> float | None:
    """What stands in for a stage that could not be scored. The 0 of an answer that never came is no judge's."""
    answer = judgement.answer
    return answer.score if isinstance(answer, StageScore) and not answer.missing else None


def _absence(judgement: Judgement, stage: Stage) -> UnscoredReason | None:
    outcome = judgement.outcome(stage)
    return outcome.reason if isinstance(outcome, Unscored) else None


def _refuse_unasked(judgements: Sequence[Judgement]) -> None:
    for number, judgement in enumerate(judgements, start=1):
        if _absence(judgement, Stage.ANSWER) is UnscoredReason.NOT_ASKED:
            raise OrderError(
                f"rollout {number} of {len(judgements)} has no answer score because nobody asked for one; "
                "judge the whole group before crediting it."
            )
