"""A second judge that the policy is not trained on marks a share of the rollouts, and an alarm rings when the two part."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.stage import STAGES, Stage
from rubricem_env.judge.audit.agreement import Agreement, measure_agreement
from rubricem_env.judge.base import Examination, Judge, present_stages
from rubricem_env.judge.group import Group
from rubricem_env.judge.outcomes import GroupJudgement, RolloutJudgement
from rubricem_env.judge.scoring import score_trajectory
from rubricem_env.judge.seeds import derive_seed, open_generator
from rubricem_env.judge.together import run_together

Share = Annotated[float, Field(ge=0.0, le=1.0)]


class StagePair(NamedTuple):
    """One stage of one rollout, scored by both judges."""

    stage: Stage
    training: float
    held_out: float


class Audit(NamedTuple):
    """What the held-out judge says of a step's sample."""

    pairs: tuple[StagePair, ...]
    agreement: Agreement
    """Of single marks, training judge first."""
    sampled: int
    unscored: int
    """Sampled rollouts that the held-out judge could not score."""

    @property
    def gap(self) -> float | None:
        """How much more the training judge gives than the held-out one, on average over stages."""
        return sum(p.training - p.held_out for p in self.pairs) / len(self.pairs) if self.pairs else None


class HeldOutAudit:
    """Samples rollouts by seed and has them marked by the same rubrics."""

    def __init__(self, judge: Judge, *, share: float, seed: int = 0) -> None:
        self._judge = judge
        self._share = share
        self._seed = seed

    async def examine(self, groups: Sequence[Group], judged: Sequence[GroupJudgement]) -> Audit:
        """Mark the sample; `judged` is what `judge_step` gave for the same groups."""
        sample = [
            (group, found, place)
            for group, found in zip(groups, judged, strict=True)
            for place in range(len(group.readings))
            if _is_marked_by_stage(found.rollouts[place]) and self._draw(found, place) < self._share
        ]
        results = await run_together(self._mark(group, found, place=place) for group, found, place in sample)
        pairs = [pair for stage_pairs, _ in results for pair in stage_pairs]
        marks = [mark for _, mark_pairs in results for mark in mark_pairs]
        unscored = sum(not mark_pairs for _, mark_pairs in results)
        return Audit(tuple(pairs), measure_agreement(marks), len(sample), unscored)

    def _draw(self, found: GroupJudgement, place: int) -> float:
        return float(open_generator(self._seed, found.step, found.query_key, "held out", place).random())

    async def _mark(
        self, group: Group, found: GroupJudgement, *, place: int
    ) -> tuple[list[StagePair], list[tuple[int, int]]]:
        reading, trained = group.readings[place], found.rollouts[place]
        present = present_stages(reading)
        rubrics = tuple(rubric for rubric in found.rubrics if rubric.stage in present)
        seed = derive_seed(self._seed, found.step, group.key, "held out", place)
        findings = await self._judge.score(Examination(group.query.question, reading, rubrics, seed))
        held_out = score_trajectory(present, found.rubrics, opinions=findings.opinions, failure=findings.failure)
        scores = [(stage, trained.judgement.score(stage), held_out.score(stage)) for stage in present]
        pairs = [StagePair(stage, a, b) for stage, a, b in scores if a is not None and b is not None]
        marks = [
            (opinion.verdict().score, findings.opinions[opinion.rubric_id].verdict().score)
            for opinion in trained.opinions
            if opinion.rubric_id in findings.opinions
        ]
        return pairs, marks


def _is_marked_by_stage(rollout: RolloutJudgement) -> bool:
    """Whether its stage scores are the training judge's: a borrowed answer score is no opinion on a plan (choice B7)."""
    return rollout.is_valid and not rollout.is_answer_only


class AlarmSettings(Frozen):
    """When the judges count as parted."""

    warm_up: Annotated[int, Field(ge=1)] = 5
    """Audits that set the level from which parting is measured."""
    window: Annotated[int, Field(ge=1)] = 5
    """Audits averaged for the present level."""
    widening: Share = 0.15
    """How much the gap may grow beyond its first level."""


class Alarm(NamedTuple):
    """The training judge's scores rise where the held-out judge's do not follow."""

    first_gap: float
    present_gap: float
    message: str


class DivergenceAlarm:
    """Watches the gap between the judges over training. Its history is data and survives a restart."""

    def __init__(self, settings: AlarmSettings | None = None) -> None:
        self._settings = settings or AlarmSettings()
        self._gaps: list[float] = []

    def observe(self, audit: Audit) -> Alarm | None:
        """Take in one audit; an alarm as long as the gap is wider than allowed."""
        if audit.gap is not None:
            self._gaps.append(audit.gap)
        settings = self._settings
        if len(self._gaps) < settings.warm_up + settings.window:
            return None
        first = sum(self._gaps[: settings.warm_up]) / settings.warm_up
        present = sum(self._gaps[-settings.window :]) / settings.window
        if present - first <= settings.widening:
            return None
        return Alarm(
            first,
            present,
            f"the training judge gives {present:+.2f} more than the held-out judge, after {first:+.2f} at first; the "
            f"allowed widening is {settings.widening:.2f}. The policy may be learning the judge instead of the task.",
        )

    def state_dict(self) -> dict[str, Any]:
        return {"gaps": list(self._gaps)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the history.

        Raises:
            FileFormatError: it is not a list of gaps between -1 and 1.
        """
        gaps = state.get("gaps")
        if not isinstance(gaps, list) or not all(type(gap) in (int, float) and -1 <= gap <= 1 for gap in gaps):
            raise FileFormatError("the divergence alarm's state holds no list of gaps between -1 and 1.")
        self._gaps = [float(gap) for gap in gaps]


def mean_by_stage(audit: Audit) -> dict[Stage, tuple[float, float]]:
    """The mean (training, held-out) score of each stage that has pairs."""
    means = {}
    for stage in STAGES:
        own = [pair for pair in audit.pairs if pair.stage is stage]
        if own:
            means[stage] = (sum(p.training for p in own) / len(own), sum(p.held_out for p in own) / len(own))
    return means
