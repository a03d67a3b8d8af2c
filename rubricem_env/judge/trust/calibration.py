"""Compares a judge with labelled examples."""

from collections.abc import Sequence
from typing import NamedTuple

from rubricem_env.concurrency import run_together
from rubricem_env.domain.base import Frozen
from rubricem_env.domain.judgement import Rubric, RubricScore
from rubricem_env.domain.scale import Score
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.judge.base import Judge, ScoringRequest
from rubricem_env.judge.trust.agreement import Agreement, measure_agreement
from rubricem_env.scaffold.parsed import parse_trajectory


class LabelledExample(Frozen):
    """A trajectory, a rubric, and the score that it should get."""

    trajectory: Trajectory
    rubric: Rubric
    label: Score


class Calibration(NamedTuple):
    """A judge compared with labels. Scores come first, labels second, so a positive bias is generosity."""

    overall: Agreement
    by_stage: tuple[tuple[str, Agreement], ...]
    rubric_scores: tuple[RubricScore | None, ...]
    """The judge's score of each example. It is None where the judge gave none."""


async def calibrate(judge: Judge, examples: Sequence[LabelledExample]) -> Calibration:
    """Score every example, one call each, and compare with the labels."""
    rubric_scores = await run_together(_score_example(judge, example) for example in examples)
    scored = [
        (score.rounded, example.label, example.rubric.stage)
        for score, example in zip(rubric_scores, examples, strict=True)
        if score
    ]
    named = dict.fromkeys(stage for example in examples for stage in example.trajectory.scaffold.names)
    stages = [(stage, [(score, label) for score, label, own in scored if own == stage]) for stage in named]
    return Calibration(
        overall=measure_agreement([(score, label) for score, label, _ in scored]),
        by_stage=tuple((stage, measure_agreement(own)) for stage, own in stages if own),
        rubric_scores=tuple(rubric_scores),
    )


async def _score_example(judge: Judge, example: LabelledExample) -> RubricScore | None:
    parsed = parse_trajectory(example.trajectory)
    # The arithmetic gives a missing stage 0 without asking the judge, and so does this.
    if not parsed.happened(example.rubric.stage):
        return RubricScore.whole(example.rubric.id, 0, "the stage never happened")
    result = await judge.score(ScoringRequest(example.trajectory.question, parsed, (example.rubric,)))
    return result.rubric_scores.get(example.rubric.id)
