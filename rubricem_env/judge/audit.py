"""How far two sets of marks agree: exactly, within one, by weighted kappa, and which side is the more generous.

The length-bias probe: the same answer, padded with words that add nothing; a fair judge gives it no more.

Calibration: a judge marks examples that people have marked, and the agreement says how far to trust it.

A second judge that the policy is not trained on marks a share of the rollouts, and an alarm rings when the two part.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from rubricem_env.concurrency import derive_seed, open_generator, run_together
from rubricem_env.domain.base import STAGES, Frozen, Stage
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.judgement import Mark, Rubric
from rubricem_env.domain.trajectory import Origin, Segment, Trajectory
from rubricem_env.judge.base import Group, Judge, ScoringRequest, present_stages
from rubricem_env.judge.scoring import GroupJudgement, RolloutJudgement, score_trajectory
from rubricem_env.scaffold.reading import read_trajectory


class Agreement(NamedTuple):
    """Figures over pairs of marks; None where there is nothing to compute them from."""

    pairs: int
    exact: float | None
    within_one: float | None
    kappa: float | None
    """Cohen's, quadratically weighted: 0 is chance. None where either side gives one mark only."""
    bias: float | None
    """Mean of first minus second mark: above 0 the first side is the more generous."""


def measure_agreement(pairs: Sequence[tuple[int, int]]) -> Agreement:
    """The figures for pairs of (first, second) marks, each 0, 1 or 2."""
    count = len(pairs)
    if not count:
        return Agreement(0, None, None, None, None)
    gaps = [first - second for first, second in pairs]
    return Agreement(
        pairs=count,
        exact=sum(gap == 0 for gap in gaps) / count,
        within_one=sum(abs(gap) <= 1 for gap in gaps) / count,
        kappa=_weighted_kappa(pairs),
        bias=sum(gaps) / count,
    )


def _weighted_kappa(pairs: Sequence[tuple[int, int]]) -> float | None:
    """1 - (observed disagreement) / (that expected by chance), disagreement being the squared distance."""
    firsts, seconds = (Counter(side) for side in zip(*pairs, strict=True))
    if len(firsts) < 2 or len(seconds) < 2:
        return None
    count = len(pairs)
    observed = sum((first - second) ** 2 for first, second in pairs) / count
    expected = sum(firsts[a] * seconds[b] * (a - b) ** 2 for a in firsts for b in seconds) / count**2
    return float(1 - observed / expected)


PADDING = (
    " It should be noted that this matter can be looked at from more than one side. Many considerations may play a "
    "role here, and each of them deserves attention in its own right. As is often the case, a broader view is helpful."
)
_CLOSING = "</answer>"


class LengthBias(NamedTuple):
    """How scores move when only the length does."""

    pairs: int
    unscored: int
    mean_gain: float | None
    """Of the padded answer over the plain one, in the answer's score; 0 is fair."""
    raised: int
    """Answers that gained by padding."""


def pad_answer(trajectory: Trajectory, times: int = 6) -> Trajectory | None:
    """The trajectory with an idle passage at the end of its answer; None where no answer is closed."""
    segments = list(trajectory.segments)
    for place in range(len(segments) - 1, -1, -1):
        text = segments[place].text
        if segments[place].origin is Origin.POLICY and _CLOSING in text:
            at = text.rindex(_CLOSING)
            segments[place] = Segment(origin=Origin.POLICY, text=text[:at] + PADDING * times + text[at:])
            return trajectory.model_copy(update={"segments": tuple(segments)})
    return None


async def probe_length(judge: Judge, trajectories: Sequence[Trajectory], *, rubrics: Sequence[Rubric]) -> LengthBias:
    """Score each answer plain and padded by the answer rubrics given."""
    own = tuple(rubric for rubric in rubrics if rubric.stage is Stage.ANSWER)
    padded = [(plain, long) for plain in trajectories if (long := pad_answer(plain)) is not None]
    scores = await run_together(_score(judge, trajectory, rubrics=own) for pair in padded for trajectory in pair)
    gains = [
        long - plain
        for plain, long in zip(scores[::2], scores[1::2], strict=True)
        if plain is not None and long is not None
    ]
    mean = sum(gains) / len(gains) if gains else None
    return LengthBias(len(gains), len(trajectories) - len(gains), mean, sum(gain > 0 for gain in gains))


async def _score(judge: Judge, trajectory: Trajectory, *, rubrics: tuple[Rubric, ...]) -> float | None:
    reading = read_trajectory(trajectory)
    found = await judge.score(ScoringRequest(trajectory.question, reading, rubrics))
    return score_trajectory((Stage.ANSWER,), rubrics, opinions=found.opinions, failure=found.failure).score(
        Stage.ANSWER
    )


class LabelledExample(Frozen):
    """A trajectory, a rubric, and the mark that it ought to get."""

    trajectory: Trajectory
    rubric: Rubric
    label: Mark


class Disagreement(NamedTuple):
    """An example on which the judge and the label differ."""

    place: int
    """Of the example, from 0."""
    title: str
    mark: int
    label: int
    justification: str


class Calibration(NamedTuple):
    """How a judge fares against labels; marks first, labels second, so a positive bias is generosity."""

    overall: Agreement
    by_stage: tuple[tuple[Stage, Agreement], ...]
    unscored: int
    disagreements: tuple[Disagreement, ...]
    """Worst first."""


async def calibrate(judge: Judge, examples: Sequence[LabelledExample]) -> Calibration:
    """Have every example marked, one call each, and compare."""
    marks = await run_together(_mark(judge, example) for example in examples)
    pairs = [(mark, e.label, e.rubric.stage) for (mark, _), e in zip(marks, examples, strict=True) if mark is not None]
    stages = [(stage, [(mark, label) for mark, label, own in pairs if own is stage]) for stage in STAGES]
    return Calibration(
        overall=measure_agreement([(mark, label) for mark, label, _ in pairs]),
        by_stage=tuple((stage, measure_agreement(own)) for stage, own in stages if own),
        unscored=len(examples) - len(pairs),
        disagreements=tuple(_disagreements(examples, marks)),
    )


async def _mark(judge: Judge, example: LabelledExample) -> tuple[int | None, str]:
    reading = read_trajectory(example.trajectory)
    # A stage that is not there has nothing to mark; the arithmetic gives it 0 without asking, and so does this.
    if not reading.happened(example.rubric.stage):
        return 0, "the stage never happened"
    found = await judge.score(ScoringRequest(example.trajectory.question, reading, (example.rubric,)))
    opinion = found.opinions.get(example.rubric.id)
    return (None, found.failure) if opinion is None else (opinion.verdict().score, opinion.justification)


def _disagreements(examples: Sequence[LabelledExample], marks: Iterable[tuple[int | None, str]]) -> list[Disagreement]:
    rows = [
        Disagreement(place, example.rubric.title, mark, example.label, why)
        for place, (example, (mark, why)) in enumerate(zip(examples, marks, strict=True))
        if mark is not None and mark != example.label
    ]
    return sorted(rows, key=lambda row: (-abs(row.mark - row.label), row.place))


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
        findings = await self._judge.score(ScoringRequest(group.query.question, reading, rubrics, seed))
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


class Divergence(NamedTuple):
    """The training judge's scores rise where the held-out judge's do not follow."""

    first_gap: float
    present_gap: float
    message: str


class DivergenceAlarm:
    """Watches the gap between the judges over training. Its history is data and survives a restart."""

    def __init__(self, settings: AlarmSettings | None = None) -> None:
        self._settings = settings or AlarmSettings()
        self._gaps: list[float] = []

    def observe(self, audit: Audit) -> Divergence | None:
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
        return Divergence(
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
