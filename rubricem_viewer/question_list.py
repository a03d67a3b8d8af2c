"""Lists the questions that a run has met."""

from collections.abc import Sequence

import numpy as np

from rubricem_viewer.api.questions import QuestionPage, QuestionRow
from rubricem_viewer.filters import PageFilter
from rubricem_viewer.record_reader import RunRecordReader
from rubricem_viewer.rollout_table import mean_of
from rubricem_viewer.run_folder import RunFolder
from rubricem_viewer.shown_numbers import number_or_none

MAX_STEPS = 50
"""Listed of one question."""


def list_questions(run: RunFolder, wanted: PageFilter) -> QuestionPage:
    """A page of the questions that were met, in the order of their first meeting."""
    record = run.record
    with record.lock:
        groups: dict[str, list[int]] = {}
        for number, head in enumerate(record.groups):
            groups.setdefault(head.query_key, []).append(number)
        containing = record.questions_with(wanted.q)
        matched = [key for key in groups if key in containing]
        return QuestionPage(
            total=len(groups),
            matched=len(matched),
            page=wanted.page,
            size=wanted.size,
            rows=tuple(_question_row(record, groups[key]) for key in matched[wanted.rows]),
        )


def _question_row(record: RunRecordReader, groups: Sequence[int]) -> QuestionRow:
    last = record.groups[groups[-1]]
    means = mean_of(record.table.rows["scores"][record.table.of_group(groups[-1])])
    known = means[~np.isnan(means)]
    return QuestionRow(
        key=last.query_key,
        question=last.question,
        steps=tuple(record.groups[number].step for number in groups[-MAX_STEPS:]),
        active=last.active,
        retired=sum(record.groups[number].retired for number in groups),
        mean=number_or_none(float(known.mean())) if len(known) else None,
    )
