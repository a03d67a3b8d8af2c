"""The row of a recorded rollout in a list."""

from typing import Any

from rubricem_viewer.api.trajectories import TrajectoryRow
from rubricem_viewer.record_reader import RunRecordReader
from rubricem_viewer.rollout_table import mean_of
from rubricem_viewer.shown_numbers import number_or_none, stage_scores


def make_row(record: RunRecordReader, number: int) -> TrajectoryRow:
    """The row of a rollout; the caller holds the record's lock."""
    fields: Any = record.table.rows[number]
    group = record.groups[int(fields["group"])]
    return TrajectoryRow(
        id=f"{group.id}-{int(fields['attempt'])}",
        step=group.step,
        group=group.id,
        attempt=int(fields["attempt"]),
        question=group.question,
        question_key=group.query_key,
        scores=stage_scores(record.stages, fields["scores"].tolist()),
        mean=number_or_none(float(mean_of(fields["scores"][None])[0])),
        true=stage_scores(record.stages, fields["true"].tolist()),
        valid=bool(fields["valid"]),
        ending=record.table.endings[int(fields["ending"])],
        calls=int(fields["calls"]),
        tokens=int(fields["tokens"]),
        violations=int(fields["violations"]),
        lessons=seen_lessons(record, number),
    )


def seen_lessons(record: RunRecordReader, number: int) -> tuple[int, ...]:
    """The numbers of the lessons that a rollout saw; the caller holds the record's lock."""
    fields: Any = record.table.rows[number]
    attempt = int(fields["attempt"])
    shown = record.groups[int(fields["group"])].lessons
    return tuple(lesson.item for lesson in shown if attempt in lesson.attempts)
