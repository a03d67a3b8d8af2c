"""Finds what separates the attempts of a group."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np

from rubricem_env.domain.base import STAGES
from rubricem_env.domain.judgement import Rubric
from rubricem_env.judge.scoring import fulfillment
from rubricem_env.scaffold.parsed import ParsedTrajectory
from rubricem_records.repeated_calls import count_repeats
from rubricem_records.run_record import RolloutEntry
from rubricem_viewer.api.groups import Separator
from rubricem_viewer.api.trajectories import TrajectoryRow
from rubricem_viewer.shown_numbers import number_or_none

Member = tuple[TrajectoryRow, RolloutEntry, ParsedTrajectory]
"""One rollout of a group."""

_Compared = tuple[Literal["stage", "rubric", "statistic"], str, str, str, Sequence[float | None], float]
"""Kind, key, title and stage of a separator, its value for each attempt, and the range of such values."""


def find_separators(members: Sequence[Member], rubrics: Mapping[str, Rubric]) -> Iterator[Separator]:
    """What differs between the attempts; what is the same in all is left out."""
    means = [row.mean for row, _, _ in members]
    stage_scores = [dict(row.scores) for row, _, _ in members]
    compared: list[_Compared] = [
        ("stage", stage.value, stage.value, stage.value, [scores[stage.value] for scores in stage_scores], 1.0)
        for stage in STAGES
    ]
    for rubric in rubrics.values():
        scores = [
            {one.rubric_id: one.score for one in entry.judged.rubric_scores}.get(rubric.id) for _, entry, _ in members
        ]
        met = [None if score is None else fulfillment(rubric, score) for score in scores]
        compared.append(("rubric", rubric.id, rubric.title, rubric.stage.value, met, 1.0))
    for name, read in _STATISTICS.items():
        counts = [float(read(row, parsed)) for row, _, parsed in members]
        compared.append(("statistic", name, name, "", counts, max(counts, default=0.0)))
    for kind, key, title, of_stage, values, scale in compared:
        given = [value for value in values if value is not None]
        spread = float(np.std(given)) / scale if given and scale > 0 else 0.0
        if spread > 0:
            yield Separator(
                kind=kind,
                key=key,
                title=title,
                stage=of_stage,
                values=tuple(number_or_none(value) for value in values),
                spread=round(spread, 4),
                agreement=_correlation(values, means),
            )


def _correlation(values: Sequence[float | None], means: Sequence[float | None]) -> float | None:
    pairs = np.array([(a, b) for a, b in zip(values, means, strict=True) if a is not None and b is not None])
    if len(pairs) < 2 or np.ptp(pairs, axis=0).min() < 1e-9:
        return None
    return number_or_none(float(np.corrcoef(pairs.T)[0, 1]))


_STATISTICS: Mapping[str, Callable[[TrajectoryRow, ParsedTrajectory], int]] = {
    "searches": lambda row, _: row.calls,
    "repeated searches": lambda _, parsed: count_repeats([turn.call for turn in parsed.turns if turn.call is not None]),
    "words of the answer": lambda _, parsed: len((parsed.answer or "").split()),
    "citations": lambda _, parsed: len(parsed.citations.known),
    "unknown citations": lambda _, parsed: len(parsed.citations.unknown),
    "tokens": lambda row, _: row.tokens,
    "violations": lambda row, _: row.violations,
}
