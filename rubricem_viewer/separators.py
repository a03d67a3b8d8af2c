"""Finds what separates the attempts of a group."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from rubricem_env.domain.judgement import Rubric
from rubricem_env.judge.scoring import fulfillment
from rubricem_env.scaffold.parsed import ParsedTrajectory
from rubricem_records.rollouts.repeated_calls import count_repeats
from rubricem_records.rollouts.run_record import RolloutEntry
from rubricem_viewer.api.groups import Separator
from rubricem_viewer.api.trajectories import TrajectoryRow
from rubricem_viewer.shown_numbers import number_or_none


class GroupMember(NamedTuple):
    """One rollout of a group."""

    row: TrajectoryRow
    entry: RolloutEntry
    parsed: ParsedTrajectory


class ComparedValues(NamedTuple):
    """Something that may differ between the attempts of a group."""

    kind: Literal["stage", "rubric", "statistic"]
    key: str
    title: str
    stage: str
    values: Sequence[float | None]
    """The value of each attempt."""
    scale: float = 1.0
    """The range of such values."""


def find_separators(members: Sequence[GroupMember], rubrics: Mapping[str, Rubric]) -> Iterator[Separator]:
    """What differs between the attempts; what is the same in all is left out."""
    means = [member.row.mean for member in members]
    for compared in (*_stages(members), *_rubrics(members, rubrics), *_statistics(members)):
        given = [value for value in compared.values if value is not None]
        spread = float(np.std(given)) / compared.scale if given and compared.scale > 0 else 0.0
        if spread > 0:
            yield Separator(
                kind=compared.kind,
                key=compared.key,
                title=compared.title,
                stage=compared.stage,
                values=tuple(number_or_none(value) for value in compared.values),
                spread=round(spread, 4),
                agreement=_correlation(compared.values, means),
            )


def _stages(members: Sequence[GroupMember]) -> Iterator[ComparedValues]:
    scores = [dict(member.row.scores) for member in members]
    for stage in scores[0] if scores else ():
        yield ComparedValues("stage", stage, stage, stage, [of_stages[stage] for of_stages in scores])


def _rubrics(members: Sequence[GroupMember], rubrics: Mapping[str, Rubric]) -> Iterator[ComparedValues]:
    scores = [{score.rubric_id: score.score for score in member.entry.judged.rubric_scores} for member in members]
    for rubric in rubrics.values():
        met = [fulfillment(rubric, given[rubric.id]) if rubric.id in given else None for given in scores]
        yield ComparedValues("rubric", rubric.id, rubric.title, rubric.stage, met)


def _statistics(members: Sequence[GroupMember]) -> Iterator[ComparedValues]:
    for name, count in _STATISTICS.items():
        counts = [float(count(member.row, member.parsed)) for member in members]
        yield ComparedValues("statistic", name, name, "", counts, scale=max(counts, default=0.0))


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
