"""Measures how the rollouts of a step were written, which the collapse detectors watch."""

from collections.abc import Sequence

import numpy as np

from rubricem_records.rollouts.repeated_calls import count_repeats
from rubricem_records.rollouts.rollouts import Rollout
from rubricem_records.runs.log_lines import RolloutStats


def measure_rollouts(groups: Sequence[Sequence[Rollout]]) -> RolloutStats:
    """The statistics of a step's groups, abandoned rollouts included."""
    rollouts = [rollout for group in groups for rollout in group]
    trajectories = [rollout.parsed for rollout in rollouts]
    calls = [[turn.call for turn in parsed.turns if turn.call is not None] for parsed in trajectories]
    return RolloutStats(
        answer_words=float(np.mean([len((parsed.answer or "").split()) for parsed in trajectories])),
        repeated_calls=sum(map(count_repeats, calls)) / max(1, sum(map(len, calls))),
        valid=float(np.mean([not parsed.rejections for parsed in trajectories])),
        policy_tokens=sum(int(rollout.tokens.policy_mask.sum()) for rollout in rollouts if rollout.tokens is not None),
    )
