"""How a step's rollouts are written, whatever they are worth: what the collapse detectors watch."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rubricem_agent.rollout.rollout import Rollout
from rubricem_env.domain.tool import ToolCall
from rubricem_env.scaffold.reading import read_trajectory
from rubricem_env.scaffold.violations import Mode


class Habits(NamedTuple):
    """Over all rollouts of a step."""

    answer_words: float
    """Of an answer, on average; an attempt without one has an answer of 0 words."""
    repeated_calls: float
    """The share of calls that repeat an earlier one of the same attempt; 0 without calls."""
    valid: float
    """The share of attempts that strict mode accepts."""
    policy_tokens: int
    """Sampled in all."""


def measure_habits(groups: Sequence[Sequence[Rollout]]) -> Habits:
    """The habits of a step's groups, abandoned rollouts included."""
    rollouts = [rollout for group in groups for rollout in group]
    readings = [read_trajectory(rollout.trajectory) for rollout in rollouts]
    calls = [[turn.call for turn in reading.turns if turn.call is not None] for reading in readings]
    return Habits(
        answer_words=float(np.mean([len((reading.answer or "").split()) for reading in readings])),
        repeated_calls=sum(map(count_repeats, calls)) / max(1, sum(map(len, calls))),
        valid=float(np.mean([not reading.rejects(Mode.STRICT) for reading in readings])),
        policy_tokens=sum(int(rollout.tokens.policy_mask.sum()) for rollout in rollouts if rollout.tokens is not None),
    )


def count_repeats(calls: Sequence[ToolCall]) -> int:
    """Calls that ask the same thing as an earlier one."""
    return len(calls) - len({call.identity for call in calls})
