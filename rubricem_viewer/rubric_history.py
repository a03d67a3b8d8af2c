"""Shows what became of every rubric of a question."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from rubricem_env.domain.judgement import Rubric
from rubricem_env.judge.rubrics.separation import score_variance
from rubricem_records.rollouts.run_record import GroupEntry, RolloutEntry
from rubricem_viewer.api.questions import Fate, RubricEvent, RubricHistory, RubricLife, StepNote
from rubricem_viewer.run_folder import RunFolder
from rubricem_viewer.shown_numbers import number_or_none
from rubricem_viewer.stage_views import rubrics_of
from rubricem_viewer.trajectory_view import MAX_QUESTION

MAX_GROUPS = 200
"""How many groups of a question are shown: the latest ones."""


class HistoricGroup(NamedTuple):
    """A group that met the question."""

    id: str
    entry: GroupEntry
    rollouts: Sequence[RolloutEntry]
    """Its rollouts, by attempt."""


def view_history(run: RunFolder, question_key: str) -> RubricHistory:
    """What became of every rubric of one question.

    Raises:
        NotThereError: the run has not met it.
    """
    record = run.record
    with record.lock:
        groups: list[HistoricGroup] = []
        for number in record.groups_of(question_key)[-MAX_GROUPS:]:
            rollouts = [record.read_rollout(row) for row in record.table.of_group(number).tolist()]
            groups.append(HistoricGroup(record.groups[number].id, record.read_group(number), rollouts))
    rubrics: dict[str, Rubric] = {}
    for _, entry, _ in groups:
        rubrics |= rubrics_of(entry)
    stages = groups[-1].rollouts[-1].rollout.parsed.stages
    ordered = sorted(rubrics.values(), key=lambda rubric: (stages.index(rubric.stage), rubric.provenance.step))
    last = groups[-1].entry
    return RubricHistory(
        key=last.query_key,
        question=last.question[:MAX_QUESTION],
        steps=tuple(
            StepNote(
                step=entry.step,
                group=group_id,
                encounter=entry.encounter,
                refused=entry.refused,
                failure=entry.proposal_failure,
            )
            for group_id, entry, _ in groups
        ),
        rubrics=tuple(_life(rubric, groups) for rubric in ordered),
    )


def _life(rubric: Rubric, groups: Sequence[HistoricGroup]) -> RubricLife:
    events: list[RubricEvent] = []
    fate: Fate
    for group_id, entry, rollouts in groups:
        known = next((active for active in entry.active if active.rubric.id == rubric.id), None)
        gone = next((retired for retired in entry.retired if retired.last.rubric.id == rubric.id), None)
        is_persistent = rubric.persistent and any(used.id == rubric.id for used in entry.rubrics)
        if gone is not None:
            fate = "retired"
        elif known is None and not is_persistent:
            continue
        elif not events:
            fate = "born"
        else:
            fate = "returned" if events[-1].fate == "retired" else "kept"
        rubric_scores = (score for rollout in rollouts for score in rollout.judged.rubric_scores)
        scores = tuple(score.score for score in rubric_scores if score.rubric_id == rubric.id)
        last = known or (gone.last if gone else None)
        variance = last.variance if last is not None else None
        if variance is None and len(scores) > 1:
            variance = score_variance(scores)
        events.append(
            RubricEvent(
                step=entry.step,
                group=group_id,
                fate=fate,
                reason=gone.reason if gone else "",
                variance=number_or_none(variance),
                scores=scores,
                mean=number_or_none(sum(scores) / len(scores)) if scores else None,
            )
        )
    is_retired = bool(events) and events[-1].fate == "retired"
    status: Literal["persistent", "active", "retired"] = "retired" if is_retired else "active"
    return RubricLife(rubric=rubric, status="persistent" if rubric.persistent else status, events=tuple(events))
