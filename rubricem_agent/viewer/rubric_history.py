"""The rubrics of a question over time: born, kept, returned, retired, with the marks that decided it."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from rubricem_agent.learn.run_record import GroupEntry, RolloutEntry
from rubricem_agent.viewer.api_models.rubrics import Fate, RubricEvent, RubricHistory, RubricLife, StepNote
from rubricem_agent.viewer.rows import number_or_none
from rubricem_agent.viewer.stage_views import rubric_view, rubrics_of
from rubricem_agent.viewer.trajectory_view import MAX_QUESTION
from rubricem_env.domain.rubric import Rubric
from rubricem_env.domain.stage import STAGES
from rubricem_env.judge.rubric_set import ActiveRubric, RetiredRubric
from rubricem_env.judge.scoring import mark_variance

Standing = Literal["persistent", "active", "retired"]


class JudgedGroup(NamedTuple):
    """A group with its rollouts, by attempt."""

    id: str
    entry: GroupEntry
    rollouts: Sequence[RolloutEntry]


def view_history(groups: Sequence[JudgedGroup]) -> RubricHistory:
    """What became of every rubric of one question; the groups are in the order of steps, one at least."""
    rubrics: dict[str, Rubric] = {}
    for group in groups:
        rubrics |= rubrics_of(group.entry)
    lives = sorted((_life(rubric, groups) for rubric in rubrics.values()), key=_order)
    last = groups[-1].entry
    return RubricHistory(
        key=last.query_key,
        question=last.question[:MAX_QUESTION],
        steps=tuple(_note(group) for group in groups),
        rubrics=tuple(lives),
    )


def _order(life: RubricLife) -> tuple[int, int]:
    stages = [stage.value for stage in STAGES]
    return stages.index(life.rubric.stage), life.rubric.step


def _note(group: JudgedGroup) -> StepNote:
    entry = group.entry
    return StepNote(
        step=entry.step,
        group=group.id,
        encounter=entry.encounter,
        refused=entry.refused,
        failure=entry.proposal_failure,
    )


def _life(rubric: Rubric, groups: Sequence[JudgedGroup]) -> RubricLife:
    events: list[RubricEvent] = []
    status: Standing = "persistent" if rubric.persistent else "active"
    was_active = False
    for group in groups:
        event = _event(rubric, group, was_active=was_active, is_first=not events)
        if event is None:
            continue
        events.append(event)
        was_active = event.fate != "retired"
        if not rubric.persistent:
            status = "active" if was_active else "retired"
    return RubricLife(
        rubric=rubric_view(rubric), status=status, prompt_hash=rubric.provenance.prompt_hash, events=tuple(events)
    )


def _event(rubric: Rubric, group: JudgedGroup, *, was_active: bool, is_first: bool) -> RubricEvent | None:
    """What became of a rubric in one group; None where it was out of use before and after."""
    entry = group.entry
    active = {one.rubric.id: one for one in entry.active}
    retired = {one.last.rubric.id: one for one in entry.retired}
    is_used = rubric.id in active or (rubric.persistent and any(rubric.id == one.id for one in entry.rubrics))
    if not is_used and rubric.id not in retired:
        return None
    gone = retired.get(rubric.id)
    marks = _marks(rubric.id, group.rollouts)
    return RubricEvent(
        step=entry.step,
        group=group.id,
        fate="retired" if gone else _fate(was_active=was_active, is_first=is_first),
        reason=gone.reason.value if gone else "",
        variance=_variance(rubric.id, active, gone, marks),
        marks=tuple(marks),
        mean=number_or_none(sum(marks) / len(marks)) if marks else None,
    )


def _fate(*, was_active: bool, is_first: bool) -> Fate:
    if is_first:
        return "born"
    return "kept" if was_active else "returned"


def _variance(
    rubric_id: str, active: Mapping[str, ActiveRubric], gone: RetiredRubric | None, marks: Sequence[float]
) -> float | None:
    known = active.get(rubric_id) or (gone.last if gone else None)
    if known is not None and known.variance is not None:
        return number_or_none(known.variance)
    return number_or_none(mark_variance(marks)) if len(marks) > 1 else None


def _marks(rubric_id: str, rollouts: Sequence[RolloutEntry]) -> list[float]:
    return [
        opinion.mark for rollout in rollouts for opinion in rollout.judged.opinions if opinion.rubric_id == rubric_id
    ]
