"""Lists the trajectories of a run that pass a filter."""

import numpy as np
import numpy.typing as npt

from rubricem_viewer.api.trajectories import TrajectoryPage
from rubricem_viewer.filters import RolloutFilter
from rubricem_viewer.record_reader import RunRecordReader
from rubricem_viewer.run_folder import RunFolder
from rubricem_viewer.trajectory_rows import make_row, seen_lessons


def list_trajectories(run: RunFolder, wanted: RolloutFilter) -> TrajectoryPage:
    """A page of the trajectories that pass.

    Raises:
        UnknownStageError: the run has no such stage.
    """
    record = run.record
    with record.lock:
        stage = record.position(wanted.stage) if wanted.stage is not None else None
        matched = record.table.select(wanted, stage, _wanted_rows(record, wanted))
        steps = record.table.rows["step"]
        return TrajectoryPage(
            total=len(steps),
            matched=len(matched),
            page=wanted.page,
            size=wanted.size,
            rows=tuple(make_row(record, row) for row in matched[wanted.rows].tolist()),
            endings=tuple(filter(None, record.table.endings)),
            steps=(int(steps.min()), int(steps.max())) if len(steps) else None,
        )


def _wanted_rows(record: RunRecordReader, wanted: RolloutFilter) -> npt.NDArray[np.bool_] | None:
    """Which rollouts are of wanted groups and saw the wanted lesson; None where all are wanted."""
    if not (wanted.q.strip() or wanted.question or wanted.group or wanted.lesson):
        return None
    questions = record.questions_with(wanted.q)
    rows = record.table.rows
    groups = np.array(
        [
            head.query_key in questions and wanted.question in ("", head.query_key) and wanted.group in ("", head.id)
            for head in record.groups
        ],
        dtype=bool,
    )
    among: npt.NDArray[np.bool_] = groups[rows["group"]]
    if wanted.lesson:
        for row in np.flatnonzero(among).tolist():
            among[row] = wanted.lesson in seen_lessons(record, row)
    return among
