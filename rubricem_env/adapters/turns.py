"""Stages by turns, for libraries that pay or train by the turn."""

from itertools import accumulate

from rubricem_env.domain.judgement import Judgement
from rubricem_env.domain.stage import STAGES, Stage
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.scaffold.reading import Reading, read_trajectory


def turn_rewards(trajectory: Trajectory, judgement: Judgement) -> list[float | None]:
    """For each turn the sum of the scores of the stages that end in it; None where no scored stage does.

    A stage that never happened has no turn and adds nothing; review and answer mostly end in the same one.
    """
    reading = read_trajectory(trajectory)
    ends = _ends(reading)
    rewards: list[float | None] = [None] * len(ends)
    for stage in STAGES:
        spans, score = reading.spans.of(stage), judgement.score(stage)
        if spans and score is not None:
            turn = next(place for place, end in enumerate(ends) if spans[-1].end <= end)
            rewards[turn] = (rewards[turn] or 0.0) + score
    return rewards


def turns_of_stage(trajectory: Trajectory, stage: Stage) -> set[int]:
    """The turns in which the stage has text, counted from 0; a turn may belong to several stages."""
    reading = read_trajectory(trajectory)
    ends = _ends(reading)
    turns = list(enumerate(zip([0, *ends], ends, strict=False)))
    spans = reading.spans.of(stage)
    return {place for span in spans for place, (start, end) in turns if span.start < end and start < span.end}


def _ends(reading: Reading) -> list[int]:
    """Where each turn ends in the policy's joined text."""
    return list(accumulate(len(turn.text) for turn in reading.turns))
