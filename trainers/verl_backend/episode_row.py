"""A finished episode as a row of the training batch: prompt, response, mask, stages, and what the desk made of it."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rubricem_agent.learn.batch import PAD
from rubricem_agent.policy.tokenizer import PolicyTokenizer
from rubricem_agent.rollout.rollout import Rollout
from rubricem_env.domain.trajectory import Origin
from rubricem_env.scaffold.reading import read_trajectory
from rubricem_env.scaffold.violations import Mode
from trainers.local.habits import count_repeats
from trainers.verl_backend.desk_types import Marks
from trainers.verl_backend.engine_policy import Versions

OURS = "rubricem"
"""Our key among veRL's extra fields."""


class RolloutHabits(NamedTuple):
    """How one rollout was written, whatever it is worth."""

    answer_words: int
    calls: int
    repeated_calls: int
    is_valid: bool
    """Whether strict mode accepts it."""


class Credentials:
    """What credit is worked out from; travels with the row, and is small but for the stage ids.

    A class of its own, because veRL dumps its rows through pydantic, which would make a named tuple a plain one.
    """

    def __init__(
        self, marks: Marks, stage_ids: npt.NDArray[np.int8], *, key: str, encounter: str, habits: RolloutHabits
    ) -> None:
        self.marks = marks
        self.stage_ids = stage_ids
        """Of the response's tokens: 0 to 3 where the policy wrote, -1 elsewhere."""
        self.key = key
        self.encounter = encounter
        self.habits = habits


class EpisodeRow(NamedTuple):
    """The fields of veRL's `AgentLoopOutput`."""

    prompt_ids: list[int]
    response_ids: list[int]
    response_mask: list[int]
    response_logprobs: list[float]
    num_turns: int
    extra_fields: dict[str, Any]


def episode_row(
    rollout: Rollout, marks: Marks, *, tokenizer: PolicyTokenizer, versions: Versions, encounter: str
) -> EpisodeRow:
    """The row of a rollout. One that never drew a token has an end token, masked, for its response."""
    tokens = rollout.tokens
    split = tokens.prompt_length if tokens is not None else 0
    ids = list(tokens.ids) if tokens is not None else []
    stages = list(tokens.stage_ids) if tokens is not None else []
    logprobs = list(tokens.logprobs) if tokens is not None else []
    end = min(tokenizer.end_ids, default=0)
    prompt, response = ids[:split] or [end], ids[split:] or [end]
    response_stages = np.array(stages[split:] or [PAD], dtype=np.int8)
    key = rollout.trajectory.query_key
    return EpisodeRow(
        prompt,
        response,
        response_mask=(response_stages != PAD).astype(int).tolist(),
        response_logprobs=logprobs[split:] or [0.0],
        num_turns=sum(segment.origin is Origin.POLICY for segment in rollout.trajectory.segments),
        extra_fields={
            OURS: Credentials(marks, response_stages, key=key, encounter=encounter, habits=_habits(rollout)),
            "min_global_steps": versions.first,
            "max_global_steps": versions.last,
            "reward_extra_info": {},
        },
    )


def _habits(rollout: Rollout) -> RolloutHabits:
    reading = read_trajectory(rollout.trajectory)
    calls = [turn.call for turn in reading.turns if turn.call is not None]
    words = len((reading.answer or "").split())
    return RolloutHabits(words, len(calls), count_repeats(calls), not reading.rejects(Mode.STRICT))
