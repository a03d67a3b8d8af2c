"""Which turn each stage ends in: where a library that pays by the turn is given the stage's score."""

from itertools import accumulate

from rubricem_env.domain.judgement import Judgement
from rubricem_env.domain.stage import STAGES
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.scaffold.reading import read_trajectory


def turn_rewards(trajectory: Trajectory, judgement: Judgement) -> list[float | None]:
    """For each turn the sum of the scores of the stages that end in it; None where no scored stage does.

    A stage that never happened has no turn and adds nothing; review and answer mostly end in the same one.
    """
    reading = read_trajectory(trajectory)
    ends = list(accumulate(len(turn.text) for turn in reading.turns))
    rewards: list[float | None] = [None] * len(ends)
    for stage in STAGES:
        spans, score = reading.spans.of(stage), judgement.score(stage)
        if spans and score is not None:
            turn = next(place for place, end in enumerate(ends) if spans[-1].end <= end)
            rewards[turn] = (rewards[turn] or 0.0) + score
    return rewards
