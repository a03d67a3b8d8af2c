"""Finds the groups that saw an item of the bank, and how the same questions did without it."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rubricem_viewer.api.lessons import LessonUse
from rubricem_viewer.api.scores import StageScores
from rubricem_viewer.record_reader import RunRecordReader
from rubricem_viewer.rollout_table import mean_of
from rubricem_viewer.shown_numbers import no_scores, stage_scores


def find_uses(record: RunRecordReader, item: int, *, key: str) -> tuple[list[LessonUse], StageScores, int]:
    """The groups that saw an item in the order of steps, the mean gain over the groups before, and how many have one.

    The group before is the latest of the same question that did not see the item, which was learnt from the question
    `key`. The caller holds the record's lock.
    """
    uses = []
    gains = []
    earlier: dict[str, int] = {}
    for number, group in enumerate(record.groups):
        shown = next((lesson for lesson in group.lessons if lesson.item == item), None)
        if shown is None:
            earlier[group.query_key] = number
            continue
        before = earlier.get(group.query_key)
        scores = _means(record, number, attempts=shown.attempts)
        other = _means(record, before) if before is not None else None
        if other is not None:
            gains.append(scores - other)
        uses.append(
            LessonUse(
                group=group.id,
                step=group.step,
                question=group.question,
                question_key=group.query_key,
                own_question=group.query_key == key,
                similarity=shown.similarity,
                scores=stage_scores(record.stages, scores.tolist()),
                before=stage_scores(record.stages, other.tolist()) if other is not None else no_scores(record.stages),
            )
        )
    gain = mean_of(np.array(gains).reshape(-1, len(record.stages)), axis=0)
    return uses, stage_scores(record.stages, gain.tolist()), len(gains)


def _means(record: RunRecordReader, group: int, *, attempts: Sequence[int] | None = None) -> npt.NDArray[np.float64]:
    """A number for each stage, of these attempts or all; NaN where there is no score."""
    rows = record.table.of_group(group)
    if attempts is not None:
        rows = rows[np.isin(record.table.rows["attempt"][rows], attempts)]
    return mean_of(record.table.rows["scores"][rows].astype(np.float64), axis=0)
