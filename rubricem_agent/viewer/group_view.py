"""A group side by side: its attempts, and what tells them apart."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from rubricem_agent.learn.run_record import GroupEntry, RolloutEntry
from rubricem_agent.viewer.api_models.groups import GroupRollout, GroupView, Separator
from rubricem_agent.viewer.api_models.runs import StageScores
from rubricem_agent.viewer.api_models.trajectories import TrajectoryRow
from rubricem_agent.viewer.rows import number_or_none, stage_scores
from rubricem_agent.viewer.stage_views import rubric_view, rubrics_of
from rubricem_agent.viewer.trajectory_view import MAX_QUESTION, lesson_views
from rubricem_env.domain.rubric import Rubric
from rubricem_env.domain.stage import STAGES, Stage
from rubricem_env.judge.scoring import fulfillment
from rubricem_env.scaffold.reading import Reading, read_trajectory

OPENING_CHARS, ANSWER_CHARS = 400, 2_000


class Member(NamedTuple):
    """One attempt of a group."""

    row: TrajectoryRow
    entry: RolloutEntry
    reading: Reading

    @classmethod
    def of(cls, row: TrajectoryRow, entry: RolloutEntry) -> "Member":
        return cls(row, entry, read_trajectory(entry.rollout.trajectory))


def view_group(group_id: str, group: GroupEntry, members: Sequence[Member], *, sort: str) -> GroupView:
    """The group; `sort` is attempt, mean, or a stage, whose best comes first."""
    ordered = sorted(members, key=_key(sort))
    rubrics = rubrics_of(group)
    separators = sorted(_separators(ordered, rubrics), key=lambda one: -one.spread)
    return GroupView(
        id=group_id,
        step=group.step,
        encounter=group.encounter,
        question=group.question[:MAX_QUESTION],
        question_key=group.query_key,
        judge=group.judge,
        rubrics=tuple(rubric_view(rubric) for rubric in rubrics.values()),
        rollouts=tuple(_rollout(member) for member in ordered),
        separators=tuple(separators),
        lessons=lesson_views(group.lessons),
        proposal_failure=group.proposal_failure,
        refused=group.refused,
    )


def _key(sort: str) -> Callable[[Member], tuple[float, int]]:
    if sort == "attempt":
        return lambda member: (0.0, member.row.attempt)
    stage = None if sort == "mean" else Stage(sort)
    return lambda member: (_best_first(member.row, stage), member.row.attempt)


def _best_first(row: TrajectoryRow, stage: Stage | None) -> float:
    score = row.mean if stage is None else score_of(row.scores, stage)
    return 1.0 if score is None else -score


def score_of(scores: StageScores, stage: Stage) -> float | None:
    """The score of a stage."""
    return (scores.plan, scores.research, scores.review, scores.answer)[stage.position]


def _rollout(member: Member) -> GroupRollout:
    plan = member.reading.stage_text(Stage.PLAN)
    return GroupRollout(
        row=member.row,
        advantages=stage_scores(member.entry.advantages or (None,) * 4),
        trained=member.entry.trained,
        opening=plan[:OPENING_CHARS],
        answer=(member.reading.answer or "")[:ANSWER_CHARS],
    )


def _separators(members: Sequence[Member], rubrics: Mapping[str, Rubric]) -> Iterator[Separator]:
    """What differs between the attempts; what is the same in all is left out."""
    means = [member.row.mean for member in members]
    for stage in STAGES:
        values = [score_of(member.row.scores, stage) for member in members]
        yield from _differing(_Measured("stage", stage.value, stage.value, stage.value, values), means, scale=1.0)
    for rubric in rubrics.values():
        marks = [_fulfilled(member, rubric) for member in members]
        yield from _differing(_Measured("rubric", rubric.id, rubric.title, rubric.stage.value, marks), means, scale=1.0)
    for name, read in _HABITS.items():
        counts = [read(member) for member in members]
        yield from _differing(_Measured("habit", name, name, "", counts), means, scale=max(counts, default=0.0))


class _Measured(NamedTuple):
    """A separator before it is measured."""

    kind: Literal["stage", "rubric", "habit"]
    key: str
    title: str
    stage: str
    values: Sequence[float | None]


def _differing(one: _Measured, means: Sequence[float | None], *, scale: float) -> Iterator[Separator]:
    given = [value for value in one.values if value is not None]
    spread = float(np.std(given)) / scale if given and scale > 0 else 0.0
    if spread > 0:
        yield Separator(
            kind=one.kind,
            key=one.key,
            title=one.title,
            stage=one.stage,
            values=tuple(number_or_none(value) for value in one.values),
            spread=round(spread, 4),
            agreement=_correlation(one.values, means),
        )


def _correlation(values: Sequence[float | None], means: Sequence[float | None]) -> float | None:
    pairs = [(a, b) for a, b in zip(values, means, strict=True) if a is not None and b is not None]
    if len(pairs) < 2:
        return None
    first, second = np.array(pairs).T
    if np.ptp(first) < 1e-9 or np.ptp(second) < 1e-9:
        return None
    return number_or_none(float(np.corrcoef(first, second)[0, 1]))


def _fulfilled(member: Member, rubric: Rubric) -> float | None:
    found = next((one for one in member.entry.judged.opinions if one.rubric_id == rubric.id), None)
    return fulfillment(rubric, found.mark) if found is not None else None


def _repeated(member: Member) -> float:
    calls = [turn.call.identity for turn in member.reading.turns if turn.call is not None]
    return float(len(calls) - len(set(calls)))


_HABITS: Mapping[str, Callable[[Member], float]] = {
    "searches": lambda member: float(member.row.calls),
    "repeated searches": _repeated,
    "words of the answer": lambda member: float(len((member.reading.answer or "").split())),
    "citations": lambda member: float(len(member.reading.citations.known)),
    "unknown citations": lambda member: float(len(member.reading.citations.unknown)),
    "tokens": lambda member: float(member.row.tokens),
    "violations": lambda member: float(member.row.violations),
}
