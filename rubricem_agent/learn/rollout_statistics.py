"""Measures how the rollouts of a step were written, which the collapse detectors watch."""

from collections.abc import Sequence

import numpy as np

from rubricem_records.rollouts.packed_tokens import PackedTokens
from rubricem_records.rollouts.repeated_calls import count_repeats
from rubricem_records.rollouts.rollout_tokens import NO_STAGE
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


def measure_tokens(rollouts: Sequence[PackedTokens]) -> dict[str, float]:
    """The fields of `RolloutStats` that are read from tokens; those of windows only where a rollout has several."""
    written = sum(count for tokens in rollouts for stage, count in tokens.runs if stage != NO_STAGE)
    windows = sum(len(tokens.window_starts) for tokens in rollouts)
    if windows == len(rollouts):
        return {"policy_tokens": written}
    read = sum(tokens.length for tokens in rollouts) - written
    again = sum(sum(_prompt_lengths(tokens)[1:]) for tokens in rollouts)
    return {"policy_tokens": written, "windows": windows / len(rollouts), "prompts_again": again / max(1, read)}


def _prompt_lengths(tokens: PackedTokens) -> list[int]:
    """The tokens of each window before the policy's first one; all of them where the policy wrote nothing."""
    stages = tokens.stages()
    return [int(np.argmax(np.append(stages[window] != NO_STAGE, True))) for window in tokens.windows()]
