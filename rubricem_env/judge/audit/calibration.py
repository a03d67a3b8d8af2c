"""Calibration: a judge marks examples that people have marked, and the agreement says how far to trust it."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.judgement import Mark
from rubricem_env.domain.rubric import Rubric
from rubricem_env.domain.stage import STAGES, Stage
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.judge.audit.agreement import Agreement, measure_agreement
from rubricem_env.judge.base import Examination, Judge
from rubricem_env.judge.together import run_together
from rubricem_env.scaffold.reading import read_trajectory


class LabelledExample(Frozen):
    """A trajectory, a rubric, and the mark that it ought to get."""

    trajectory: Trajectory
    rubric: Rubric
    label: Mark


class Disagreement(NamedTuple):
    """An example on which the judge and the label differ."""

    place: int
    """Of the example, from 0."""
    title: str
    mark: int
    label: int
    justification: str


class Calibration(NamedTuple):
    """How a judge fares against labels; marks first, labels second, so a positive bias is generosity."""

    overall: Agreement
    by_stage: tuple[tuple[Stage, Agreement], ...]
    unscored: int
    disagreements: tuple[Disagreement, ...]
    """Worst first."""


async def calibrate(judge: Judge, examples: Sequence[LabelledExample]) -> Calibration:
    """Have every example marked, one call each, and compare."""
    marks = await run_together(_mark(judge, example) for example in examples)
    pairs = [(mark, e.label, e.rubric.stage) for (mark, _), e in zip(marks, examples, strict=True) if mark is not None]
    stages = [(stage, [(mark, label) for mark, label, own in pairs if own is stage]) for stage in STAGES]
    return Calibration(
        overall=measure_agreement([(mark, label) for mark, label, _ in pairs]),
        by_stage=tuple((stage, measure_agreement(own)) for stage, own in stages if own),
        unscored=len(examples) - len(pairs),
        disagreements=tuple(_disagreements(examples, marks)),
    )


async def _mark(judge: Judge, example: LabelledExample) -> tuple[int | None, str]:
    reading = read_trajectory(example.trajectory)
    # A stage that is not there has nothing to mark; the arithmetic gives it 0 without asking, and so does this.
    if not reading.happened(example.rubric.stage):
        return 0, "the stage never happened"
    found = await judge.score(Examination(example.trajectory.question, reading, (example.rubric,)))
    opinion = found.opinions.get(example.rubric.id)
    return (None, found.failure) if opinion is None else (opinion.verdict().score, opinion.justification)


def _disagreements(examples: Sequence[LabelledExample], marks: Iterable[tuple[int | None, str]]) -> list[Disagreement]:
    rows = [
        Disagreement(place, example.rubric.title, mark, example.label, why)
        for place, (example, (mark, why)) in enumerate(zip(examples, marks, strict=True))
        if mark is not None and mark != example.label
    ]
    return sorted(rows, key=lambda row: (-abs(row.mark - row.label), row.place))
