"""How far a judge can be trusted: agreement with labels, the length-bias probe, and the held-out judge.

`calibrate` compares a judge with labelled examples. `probe_length` pads answers with empty words: a fair judge gives
them no more. `HeldOutAudit` lets a second judge, which the policy is not trained on, score a sample of the rollouts and
warns when the two judges diverge over training.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import ConfigDict, Field

from rubricem_env.concurrency import derive_seed, open_generator, run_together
from rubricem_env.domain.base import STAGES, Frozen, Stage, UnitScore
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.judgement import Rubric, RubricScore, Score
from rubricem_env.domain.trajectory import Origin, Segment, Trajectory
from rubricem_env.judge.base import Group, Judge, ScoringRequest, present_stages
from rubricem_env.judge.scoring import GroupJudgement, score_trajectory
from rubricem_env.scaffold.parsed import parse_trajectory


class Agreement(NamedTuple):
    """Statistics over pairs of rubric scores; None where there is nothing to compute them from."""

    pairs: int
    exact: float | None
    within_one: float | None
    kappa: float | None
    """Cohen's, quadratically weighted: 0 is chance. None where either side gives one score only."""
    bias: float | None
    """Mean of first minus second score: above 0 the first side is more generous."""


def measure_agreement(pairs: Sequence[tuple[int, int]]) -> Agreement:
    """The agreement over pairs of (first, second) scores, each 0, 1 or 2."""
    if not pairs:
        return Agreement(0, None, None, None, None)
    scores = np.array(pairs)
    gaps = scores[:, 0] - scores[:, 1]
    # 1 - (observed disagreement) / (that expected by chance), disagreement being the squared distance.
    by_chance = scores.var(axis=0).sum() + gaps.mean() ** 2
    kappa = float(1 - (gaps**2).mean() / by_chance) if np.ptp(scores, axis=0).all() else None
    return Agreement(len(pairs), float((gaps == 0).mean()), float((abs(gaps) <= 1).mean()), kappa, float(gaps.mean()))


PADDING = (
    " It should be noted that this matter can be looked at from more than one side. Many considerations may play a "
    "role here, and each of them deserves attention in its own right. As is often the case, a broader view is helpful."
)
_CLOSING = "</answer>"


def pad_answer(trajectory: Trajectory, times: int = 6) -> Trajectory | None:
    """The trajectory with empty words at the end of its answer; None where no answer is closed."""
    segments = list(trajectory.segments)
    for index in range(len(segments) - 1, -1, -1):
        text = segments[index].text
        if segments[index].origin is Origin.POLICY and _CLOSING in text:
            at = text.rindex(_CLOSING)
            segments[index] = Segment(origin=Origin.POLICY, text=text[:at] + PADDING * times + text[at:])
            return trajectory.model_copy(update={"segments": tuple(segments)})
    return None


async def probe_length(
    judge: Judge, trajectories: Sequence[Trajectory], *, rubrics: Sequence[Rubric]
) -> tuple[float | None, ...]:
    """What padding adds to each answer's score, by the answer rubrics given: 0 is fair.

    None where no answer is closed, or where the judge gave no score to one of the two versions.
    """
    answer_rubrics = tuple(rubric for rubric in rubrics if rubric.stage is Stage.ANSWER)

    async def score(trajectory: Trajectory) -> float | None:
        found = await judge.score(ScoringRequest(trajectory.question, parse_trajectory(trajectory), answer_rubrics))
        return score_trajectory(
            (Stage.ANSWER,), answer_rubrics, rubric_scores=found.rubric_scores, failure=found.failure
        ).score(Stage.ANSWER)

    async def gain(plain: Trajectory) -> float | None:
        padded = pad_answer(plain)
        if padded is None:
            return None
        before, after = await run_together([score(plain), score(padded)])
        return None if before is None or after is None else after - before

    return tuple(await run_together(gain(trajectory) for trajectory in trajectories))


class LabelledExample(Frozen):
    """A trajectory, a rubric, and the score that it should get."""

    trajectory: Trajectory
    rubric: Rubric
    label: Score


class Calibration(NamedTuple):
    """A judge compared with labels. Scores come first, labels second, so a positive bias is generosity."""

    overall: Agreement
    by_stage: tuple[tuple[Stage, Agreement], ...]
    rubric_scores: tuple[RubricScore | None, ...]
    """The judge's score of each example; None where it gave none."""


async def calibrate(judge: Judge, examples: Sequence[LabelledExample]) -> Calibration:
    """Score every example, one call each, and compare with the labels."""
    rubric_scores = await run_together(_score_example(judge, example) for example in examples)
    scored = [
        (score.rounded, example.label, example.rubric.stage)
        for score, example in zip(rubric_scores, examples, strict=True)
        if score
    ]
    stages = [(stage, [(score, label) for score, label, own in scored if own is stage]) for stage in STAGES]
    return Calibration(
        overall=measure_agreement([(score, label) for score, label, _ in scored]),
        by_stage=tuple((stage, measure_agreement(own)) for stage, own in stages if own),
        rubric_scores=tuple(rubric_scores),
    )


async def _score_example(judge: Judge, example: LabelledExample) -> RubricScore | None:
    parsed = parse_trajectory(example.trajectory)
    # The arithmetic gives a missing stage 0 without asking the judge, and so does this.
    if not parsed.happened(example.rubric.stage):
        return RubricScore.whole(example.rubric.id, 0, "the stage never happened")
    found = await judge.score(ScoringRequest(example.trajectory.question, parsed, (example.rubric,)))
    return found.rubric_scores.get(example.rubric.id)


class AuditSettings(Frozen):
    """How much the held-out judge scores, and when the two judges count as diverged."""

    share: UnitScore = 0.1
    """Of the rollouts that the training judge scored stage by stage."""
    warm_up: Annotated[int, Field(ge=1)] = 5
    """Audits whose mean gap is the baseline."""
    window: Annotated[int, Field(ge=1)] = 5
    """Audits whose mean gap is compared with the baseline."""
    widening: UnitScore = 0.15
    """How much the gap may grow beyond the baseline."""


class Audit(Frozen):
    """One step's sample, scored by both judges; also what the step's line in the log says of it."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, strict=False)

    judge: dict[str, float]
    """The training judge's mean score of each stage that both judges scored."""
    held_out: dict[str, float]
    """The held-out judge's, on the same rollouts."""
    gap: float | None = None
    """How much more the training judge gives than the held-out one, over all pairs of stage scores; None without one."""
    kappa: float | None = None
    """Agreement of the single rubric scores; None where it cannot be computed."""
    sampled: int = 0
    unscored: int = 0
    """Sampled rollouts that the held-out judge could not score."""
    warning: str = ""
    """Says that the judges have diverged, as long as the gap is wider than allowed."""


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
            (group, one, index)
            for group, one in zip(groups, judged, strict=True)
            for index, rollout in enumerate(one.rollouts)
            # An answer's score that stands in for all stages says nothing about a plan (choice B7).
            if rollout.is_valid
            and not rollout.is_answer_only
            and open_generator(self._seed, one.step, one.query_key, "held out", index).random() < self._settings.share
        ]
        results = await run_together(self._compare(group, judgement, index) for group, judgement, index in sample)
        stage_pairs = [pair for pairs, _ in results for pair in pairs]
        score_pairs = [pair for _, pairs in results for pair in pairs]
        by_stage = {stage: [scores for own, *scores in stage_pairs if own is stage] for stage in STAGES}
        trained, held_out = (
            {stage.value: round(fmean([pair[side] for pair in pairs]), 4) for stage, pairs in by_stage.items() if pairs}
            for side in (0, 1)
        )
        gap = fmean([first - second for _, first, second in stage_pairs]) if stage_pairs else None
        if gap is not None:
            self._gaps.append(gap)
        return Audit(
            judge=trained,
            held_out=held_out,
            gap=gap,
            kappa=measure_agreement(score_pairs).kappa,
            sampled=len(sample),
            unscored=sum(not pairs for pairs, _ in results),
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

    async def _compare(
        self, group: Group, judgement: GroupJudgement, index: int
    ) -> tuple[list[tuple[Stage, float, float]], list[tuple[int, int]]]:
        """Pairs of (training, held-out) scores of one rollout: of its stages, and of its single rubrics."""
        parsed, trained = group.trajectories[index], judgement.rollouts[index]
        present = present_stages(parsed)
        rubrics = tuple(r for r in self._rubrics.get(group.key, judgement.rubrics) if r.stage in present)
        seed = derive_seed(self._seed, judgement.step, group.key, "held out", index)
        found = await self._judge.score(ScoringRequest(group.query.question, parsed, rubrics, seed))
        held_out = score_trajectory(present, rubrics, rubric_scores=found.rubric_scores, failure=found.failure)
        scores = [(stage, trained.judgement.score(stage), held_out.score(stage)) for stage in present]
        stage_pairs = [(stage, a, b) for stage, a, b in scores if a is not None and b is not None]
        score_pairs = [
            (score.rounded, found.rubric_scores[score.rubric_id].rounded)
            for score in trained.rubric_scores
            if score.rubric_id in found.rubric_scores
        ]
        return stage_pairs, score_pairs

    def _warning(self) -> str:
        settings = self._settings
        if len(self._gaps) < settings.warm_up + settings.window:
            return ""
        first, present = fmean(self._gaps[: settings.warm_up]), fmean(self._gaps[-settings.window :])
        if present - first <= settings.widening:
            return ""
        return (
            f"the training judge now scores {present:+.2f} above the held-out judge; the first audits had {first:+.2f}, "
            f"and the gap may widen by {settings.widening:.2f}. The policy may be learning the judge instead of the task."
        )
