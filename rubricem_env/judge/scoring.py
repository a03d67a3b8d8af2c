"""Stage scores: their arithmetic (paper, section C.3; choices B1-B7), and the judgements of rollouts and groups.

What makes a judged rollout valid, and what stands in for a score that could not be given, is defined here alone.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import pvariance
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from rubricem_env.domain.base import STAGES, Frozen, Stage, Text
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.judgement import (
    FULL_SCORE,
    Judgement,
    Rubric,
    RubricScore,
    StageScore,
    Unscored,
    UnscoredReason,
)

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
    proposal_failure: str = "",
) -> StageScore | Unscored:
    """R = sum of w t over sum of w, over the rubrics that the judge scored; `failure` says why it scored none.

    A stage without rubrics is unscored. So is one with rubrics of which none was scored: the judge failed, as it did
    where there are no rubrics because proposing them failed. None of these is 0.
    """
    if not rubrics and proposal_failure:
        return Unscored(reason="judge_failed", detail=f"no rubric could be proposed: {proposal_failure}")
    if not rubrics:
        return Unscored(reason="no_rubric")
    scored = [(rubric, rubric_scores[rubric.id]) for rubric in rubrics if rubric.id in rubric_scores]
    if not scored:
        detail = failure or "the judge returned no usable score for this stage"
        return Unscored(reason="judge_failed", detail=detail)
    # fsum makes the result independent of the order of the rubrics.
    total = math.fsum(rubric.weight for rubric, _ in scored)
    gained = math.fsum(rubric.weight * fulfillment(rubric, score.score) for rubric, score in scored)
    stage_score = min(1.0, max(0.0, gained / total))
    return StageScore(score=stage_score, rubric_scores=tuple(score for _, score in scored))


def score_trajectory(
    present: Iterable[Stage],
    rubrics: Sequence[Rubric],
    *,
    rubric_scores: Mapping[str, RubricScore],
    failure: str = "",
    proposal_failure: str = "",
) -> Judgement:
    """Every stage's outcome: scored where it is present, 0 where it is missing."""
    outcomes: dict[Stage, StageScore | Unscored] = dict.fromkeys(STAGES, MISSING)
    for stage in present:
        own = [rubric for rubric in rubrics if rubric.stage is stage]
        outcomes[stage] = score_stage(own, rubric_scores, failure=failure, proposal_failure=proposal_failure)
    return Judgement.of(outcomes)


Fallback = Literal["mean", "broadcast"]
"""What a stage gets whose scoring failed in a rollout with a scored answer (choice B7).

mean: the group's mean of that stage, and advantage 0 there. broadcast: the answer's score, as the paper's text has it;
where the stages' means differ, the failure itself becomes a reward.
"""


class GroupScores(NamedTuple):
    """The scores of a group of rollouts of one question, as `assign_credit` takes them."""

    scores: npt.NDArray[np.float64]
    """(rollouts, stages); 0 where there is none."""
    valid: npt.NDArray[np.bool_]
    """(rollouts,): may enter statistics and loss."""
    scored: npt.NDArray[np.bool_]
    """(rollouts, stages): False where scoring that stage failed, so that the group's mean stands in."""


def fill_failed_stages(judgement: Judgement) -> Judgement:
    """The paper's fallback, `broadcast`: the answer's score for each stage whose scoring failed.

    Missing stages and stages without rubrics stay as they are. Nothing changes where the answer itself is missing or
    unscored: the 0 of a missing answer is no judge's score.
    """
    failed = [stage for stage in STAGES if _absence(judgement, stage) == "judge_failed"]
    answer = judgement.answer
    if not failed or not isinstance(answer, StageScore) or answer.missing:
        return judgement
    return judgement.model_copy(update=dict.fromkeys(map(str, failed), StageScore(score=answer.score)))


def is_valid(judgement: Judgement) -> bool:
    """Whether the rollout may enter group statistics and the loss: no scoring failed, or the answer has a score."""
    filled = fill_failed_stages(judgement)
    return not any(_absence(filled, stage) == "judge_failed" for stage in STAGES)


def _absence(judgement: Judgement, stage: Stage) -> UnscoredReason | None:
    outcome = judgement.outcome(stage)
    return outcome.reason if isinstance(outcome, Unscored) else None


def group_scores(judgements: Sequence[Judgement], fallback: Fallback = "mean") -> GroupScores:
    """The scores of a group, which rollouts are valid, and which stages of them were scored.

    A missing stage is 0 (choice B3). A stage without rubrics for any rollout is 0 for the whole group, so that it
    drops out of the advantages (B4). Where scoring a stage failed, `fallback` says what stands in; where the judge gave
    the answer no score either, as where there is no answer, the rollout is masked (B7).

    Raises:
        UsageError: the judge was not asked for an answer.
    """
    absences = [_absence(judgement, Stage.ANSWER) for judgement in judgements]
    if "not_asked" in absences:
        raise UsageError(
            f"rollout {absences.index('not_asked') + 1} of {len(absences)} has no answer score because none was requested; "
            "judge the whole group before crediting it."
        )
    valid = np.array([is_valid(judgement) for judgement in judgements], dtype=bool)
    if fallback == "broadcast":
        judgements = [fill_failed_stages(judgement) for judgement in judgements]
    rows = [[(one.score(stage), _absence(one, stage)) for stage in STAGES] for one in judgements]
    shape = (len(judgements), len(STAGES))
    scores = np.array([[score or 0.0 for score, _ in row] for row in rows], dtype=np.float64).reshape(shape)
    scored = np.array([[why != "judge_failed" for _, why in row] for row in rows], dtype=bool).reshape(shape)
    for stage in STAGES:
        if any(row[stage.position][1] in ("no_rubric", "not_asked") for row in rows):
            scores[:, stage.position] = 0.0
            scored[:, stage.position] = True
    return GroupScores(scores, valid, scored)


def score_variance(scores: Sequence[float]) -> float:
    """How well a rubric separates a group: the population variance of its scores, exactly 0.0 where all agree."""
    return pvariance(scores) if scores else 0.0


MAX_PER_STAGE = 4
"""Rubrics that a judge without a model proposes for one stage."""


def separating_rubrics(judged: Iterable[tuple[Rubric, Sequence[float]]]) -> Iterator[Rubric]:
    """The rubrics whose scores differ over a group, by stage; of each stage the few that separate it best."""
    rated = [(score_variance(scores), rubric) for rubric, scores in judged]
    rated.sort(key=lambda one: (-one[0], -one[1].weight, one[1].title))
    for stage in STAGES:
        yield from [rubric for variance, rubric in rated if variance > 0 and rubric.stage is stage][:MAX_PER_STAGE]


class RolloutJudgement(Frozen):
    """The judgement of one trajectory, with the rubric scores that it rests on."""

    judgement: Judgement
    rubric_scores: tuple[RubricScore, ...] = ()
    is_answer_only: bool = False
    """The full call failed, and only the answer has a score (choice B7)."""
    failure: Text = ""
    prompt_hash: Text = ""
    """Of the scoring prompt; empty where no model was asked."""
    injections: tuple[Text, ...] = ()
    """Kinds of prompt injection against the judge that were found in the trajectory. It does not change the score."""

    @property
    def is_valid(self) -> bool:
        """See `is_valid` of the judgement."""
        return is_valid(self.judgement)


class GroupJudgement(Frozen):
    """The judgements of all trajectories of one question in one step."""

    query_key: Text
    step: int
    fingerprint: Text
    """Of the judged trajectories, so that a resumed step does not take another group's scores."""
    judge: Text = ""
    """The judge's name."""
    rubrics: tuple[Rubric, ...]
    """The rubrics that the group was scored by, including those retired since."""
    rollouts: tuple[RolloutJudgement, ...]
    proposal_failure: Text = ""
    """Why proposing new rubrics failed; empty where it did not."""
    refused: tuple[Text, ...] = ()
    """Reasons for each proposed rubric that was refused."""

    @property
    def judgements(self) -> tuple[Judgement, ...]:
        return tuple(rollout.judgement for rollout in self.rollouts)

    @property
    def failures(self) -> int:
        """The number of invalid rollouts."""
        return sum(not rollout.is_valid for rollout in self.rollouts)


def count_reasons(refusals: Iterable[str]) -> dict[str, int]:
    """Refusals, each "code: sentence", counted by code; an empty one is none."""
    return dict(sorted(Counter(text.partition(":")[0] for text in refusals if text).items()))


def refused_rubrics(groups: Iterable[GroupJudgement]) -> dict[str, int]:
    """How many proposed rubrics were refused, by reason."""
    return count_reasons(refusal for group in groups for refusal in group.refused)
