"""The held-out judge: a second judge, which the policy is not trained on, scores a sample of the rollouts.

`HeldOutAudit` warns when the two judges diverge over training.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from pydantic import ConfigDict

from rubricem_env.concurrency import derive_seed, open_generator, run_together
from rubricem_env.domain.base import Frozen, PositiveCount, UnitScore
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.judgement import Rubric
from rubricem_env.domain.settings import Settings
from rubricem_env.judge.base import Judge, ScoringRequest, present_stages
from rubricem_env.judge.group import Group
from rubricem_env.judge.judgements import GroupJudgement
from rubricem_env.judge.scoring import score_trajectory
from rubricem_env.judge.trust.agreement import measure_agreement


class AuditSettings(Settings):
    """How much the held-out judge scores, and when the two judges count as diverged."""

    share: UnitScore = 0.1
    """The share of the rollouts that is scored, of those that the training judge scored stage by stage."""
    warm_up: PositiveCount = 5
    """Audits whose mean gap is the baseline."""
    window: PositiveCount = 5
    """Audits whose mean gap is compared with the baseline."""
    widening: UnitScore = 0.15
    """How much the gap may grow beyond the baseline."""


class Audit(Frozen):
    """One step's sample, scored by both judges; also what the step's line in the log says of it."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, strict=False)

    judge: dict[str, float]
    """The training judge's mean score of each stage that both judges scored."""
    held_out: dict[str, float]
    """The held-out judge's mean score of each stage, on the same rollouts."""
    gap: float | None = None
    """How much more the training judge gives than the held-out one, over all pairs of stage scores.

    It is None where there is no pair.
    """
    kappa: float | None = None
    """The agreement of the single rubric scores. It is None where it cannot be computed."""
    sampled: int = 0
    unscored: int = 0
    """How many sampled rollouts the held-out judge could not score."""
    warning: str = ""
    """Says that the judges have diverged, as long as the gap is wider than allowed."""


class _StagePair(NamedTuple):
    """The scores that both judges gave to one stage of a rollout."""

    stage: str
    trained: float
    held_out: float


class _Comparison(NamedTuple):
    """The scores that both judges gave to one rollout."""

    stage_pairs: list[_StagePair]
    score_pairs: list[tuple[int, int]]
    """The scores of single rubrics, as (training, held-out)."""


class HeldOutAudit:
    """Scores a seeded sample of the rollouts with a judge that the policy is not trained on, and watches the gap.

    It only reads: nothing that it does reaches the training judge, its rubric buffer or a loss. A rollout is scored by
    the rubrics that the training judge used, or by the fixed rubrics of its question where `rubrics` (by query key) has
    some: then a policy that games evolving rubrics shows too. The history of gaps survives a restart.
    """

    def __init__(
        self,
        judge: Judge,
        *,
        settings: AuditSettings | None = None,
        rubrics: Mapping[str, Sequence[Rubric]] | None = None,
        seed: int = 0,
    ) -> None:
        self._judge = judge
        self._settings = settings or AuditSettings()
        self._rubrics = dict(rubrics or {})
        self._seed = seed
        self._gaps: list[float] = []

    async def examine(self, groups: Sequence[Group], judged: Sequence[GroupJudgement]) -> Audit:
        """Audit one step. `judged` holds the training judge's judgements of the same groups, in order."""
        sample = [
            (group, group_judgement, index)
            for group, group_judgement in zip(groups, judged, strict=True)
            for index, rollout in enumerate(group_judgement.rollouts)
            # An answer's score that stands in for all stages says nothing about a plan.
            if rollout.is_valid
            and not rollout.is_answer_only
            and open_generator(self._seed, group_judgement.step, group_judgement.query_key, "held out", index).random()
            < self._settings.share
        ]
        results = await run_together(self._compare(group, judgement, index) for group, judgement, index in sample)
        stage_pairs = [pair for comparison in results for pair in comparison.stage_pairs]
        score_pairs = [pair for comparison in results for pair in comparison.score_pairs]
        trained = {}
        held_out = {}
        for stage in dict.fromkeys(stage for group in judged for one in group.judgements for stage in one.stages):
            own = [pair for pair in stage_pairs if pair.stage == stage]
            if own:
                trained[stage] = round(fmean([pair.trained for pair in own]), 4)
                held_out[stage] = round(fmean([pair.held_out for pair in own]), 4)
        gap = fmean([pair.trained - pair.held_out for pair in stage_pairs]) if stage_pairs else None
        if gap is not None:
            self._gaps.append(gap)
        return Audit(
            judge=trained,
            held_out=held_out,
            gap=gap,
            kappa=measure_agreement(score_pairs).kappa,
            sampled=len(sample),
            unscored=sum(not comparison.stage_pairs for comparison in results),
            warning=self._warning(),
        )

    def state_dict(self) -> dict[str, Any]:
        return {"gaps": list(self._gaps)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the history of gaps.

        Raises:
            FileFormatError: it is not a list of numbers between -1 and 1.
        """
        gaps = state.get("gaps")
        if not isinstance(gaps, list) or not all(type(gap) in (int, float) and -1 <= gap <= 1 for gap in gaps):
            raise FileFormatError("the held-out audit's state has no list of gaps between -1 and 1.")
        self._gaps = [float(gap) for gap in gaps]

    async def _compare(self, group: Group, judgement: GroupJudgement, index: int) -> _Comparison:
        """Both judges' scores of one rollout."""
        parsed = group.trajectories[index]
        trained = judgement.rollouts[index]
        present = present_stages(parsed)
        rubrics = tuple(r for r in self._rubrics.get(group.key, judgement.rubrics) if r.stage in present)
        seed = derive_seed(self._seed, judgement.step, group.key, "held out", index)
        result = await self._judge.score(ScoringRequest(group.query.question, parsed, rubrics, seed))
        held_out = score_trajectory(
            present, rubrics, rubric_scores=result.rubric_scores, failure=result.failure, stages=parsed.stages
        )
        stage_pairs = []
        for stage in present:
            own = trained.judgement.score(stage)
            other = held_out.score(stage)
            if own is not None and other is not None:
                stage_pairs.append(_StagePair(stage, own, other))
        score_pairs = [
            (score.rounded, result.rubric_scores[score.rubric_id].rounded)
            for score in trained.rubric_scores
            if score.rubric_id in result.rubric_scores
        ]
        return _Comparison(stage_pairs, score_pairs)

    def _warning(self) -> str:
        settings = self._settings
        if len(self._gaps) < settings.warm_up + settings.window:
            return ""
        first = fmean(self._gaps[: settings.warm_up])
        present = fmean(self._gaps[-settings.window :])
        if present - first <= settings.widening:
            return ""
        return (
            f"the training judge now scores {present:+.2f} above the held-out judge; the first audits had "
            f"{first:+.2f}, and the gap may widen by {settings.widening:.2f}. The policy may be learning the judge "
            "instead of the task."
        )
