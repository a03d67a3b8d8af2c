"""A rollout as a row of a list, from the index alone."""

import math
from collections.abc import Sequence
from typing import Any

from rubricem_agent.viewer.api_models.runs import StageScores
from rubricem_agent.viewer.api_models.trajectories import TrajectoryRow
from rubricem_agent.viewer.rollout_table import mean_of
from rubricem_agent.viewer.run_record_reader import RunRecordReader

DIGITS = 4


def make_row(record: RunRecordReader, number: int) -> TrajectoryRow:
    """The row of a rollout; the caller holds the record's lock."""
    fields: Any = record.table.rows[number]
    group = record.groups[int(fields["group"])]
    question = record.questions[group.question]
    return TrajectoryRow(
        id=f"{group.id}-{int(fields['attempt'])}",
        step=group.step,
        group=group.id,
        attempt=int(fields["attempt"]),
        question=question.text,
        question_key=question.key,
        scores=stage_scores(fields["scores"].tolist()),
        mean=number_or_none(float(mean_of(fields["scores"][None])[0])),
        true=stage_scores(fields["true"].tolist()),
        valid=bool(fields["valid"]),
        complete=bool(fields["complete"]),
        ending=record.table.ending(int(fields["ending"])),
        calls=int(fields["calls"]),
        tokens=int(fields["tokens"]),
        violations=int(fields["violations"]),
        lessons=tuple(lesson.item for lesson in group.lessons),
    )


def stage_scores(values: Sequence[float | None]) -> StageScores:
    """Four numbers by stage; NaN is no score."""
    plan, research, review, answer = (number_or_none(value) for value in values)
    return StageScores(plan=plan, research=research, review=review, answer=answer)


def number_or_none(value: float | None) -> float | None:
    """Rounded for showing; None for what is no number."""
    return round(value, DIGITS) if value is not None and math.isfinite(value) else None
