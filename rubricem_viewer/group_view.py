"""Shows a group of attempts side by side."""

from rubricem_viewer.api.groups import GroupRollout, GroupView
from rubricem_viewer.api.trajectories import TrajectoryRow
from rubricem_viewer.run_folder import RunFolder
from rubricem_viewer.separators import GroupMember, find_separators
from rubricem_viewer.shown_numbers import stage_scores
from rubricem_viewer.stage_views import rubrics_of
from rubricem_viewer.trajectory_rows import make_row
from rubricem_viewer.trajectory_view import MAX_QUESTION

OPENING_CHARS = 400
ANSWER_CHARS = 2_000


def view_group(run: RunFolder, group_id: str, *, sort: str = "attempt") -> GroupView:
    """A group side by side; `sort` is attempt, mean, or a stage, whose best comes first.

    Raises:
        NotThereError: there is none of that id.
        UnknownStageError: `sort` is none of these.
    """
    record = run.record
    with record.lock:
        if sort not in ("attempt", "mean"):
            record.position(sort)
        number = record.find_group(group_id)
        group = record.read_group(number)
        rows = record.table.of_group(number).tolist()
        rollouts = [(make_row(record, row), record.read_rollout(row)) for row in rows]
    members = [GroupMember(row, entry, entry.rollout.parsed) for row, entry in rollouts]
    ordered = sorted(members, key=lambda member: _rank(member.row, sort))
    rubrics = rubrics_of(group)
    separators = sorted(find_separators(ordered, rubrics), key=lambda separator: -separator.spread)
    return GroupView(
        id=group_id,
        step=group.step,
        encounter=group.encounter,
        question=group.question[:MAX_QUESTION],
        question_key=group.query_key,
        judge=group.judge,
        rubrics=tuple(rubrics.values()),
        rollouts=tuple(
            GroupRollout(
                row=row,
                advantages=stage_scores(parsed.stages, entry.advantages or (None,) * len(parsed.stages)),
                trained=entry.trained,
                opening=parsed.stage_text(parsed.stages[0])[:OPENING_CHARS],
                answer=(parsed.answer or "")[:ANSWER_CHARS],
            )
            for row, entry, parsed in ordered
        ),
        separators=tuple(separators),
        lessons=group.lessons,
        proposal_failure=group.proposal_failure,
        refused=group.refused,
    )


def _rank(row: TrajectoryRow, sort: str) -> tuple[float, int]:
    """The best first, and those without a score last; by attempt alone, or among equals."""
    score = {"attempt": 0.0, "mean": row.mean, **dict(row.scores)}[sort]
    return (1.0 if score is None else -score), row.attempt
