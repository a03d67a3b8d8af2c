"""A finished episode as a row of the training batch: prompt, response, mask, stages, and what the desk made of it."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rubricem_agent.learn.batch import PAD
from rubricem_agent.policy.tokenizer import PolicyTokenizer
from rubricem_agent.rollout.rollout import Rollout
from rubricem_agent.rollout.tokens import RolloutTokens
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
    """The row of a rollout. One that never drew a token has an end token, masked, for its prompt and its response."""
    drawn = _until_last_drawn(rollout.tokens) if rollout.tokens is not None else _NOTHING
    end = min(tokenizer.end_ids, default=0)
    prompt, response = drawn.prompt or [end], drawn.response or [end]
    response_stages = np.array(drawn.stages or [PAD], dtype=np.int8)
    key = rollout.trajectory.query_key
    return EpisodeRow(
        prompt,
        response,
        response_mask=(response_stages != PAD).astype(int).tolist(),
        response_logprobs=drawn.logprobs or [0.0],
        num_turns=sum(segment.origin is Origin.POLICY for segment in rollout.trajectory.segments),
        extra_fields={
            OURS: Credentials(marks, response_stages, key=key, encounter=encounter, habits=_habits(rollout)),
            "min_global_steps": versions.first,
            "max_global_steps": versions.last,
            "reward_extra_info": {},
        },
    )


class _Drawn(NamedTuple):
    """An episode's tokens as far as they are trained on: stages and log-probabilities are the response's."""

    prompt: list[int]
    response: list[int]
    stages: list[int]
    logprobs: list[float]


_NOTHING = _Drawn([], [], [], [])


def _until_last_drawn(tokens: RolloutTokens) -> _Drawn:
    """Without what a tool answered after the policy's last token.

    Nothing is trained on there, and it is all that an engine's limit does not bound: a row that is longer than what
    the workers take at once would stop the run.
    """
    drawn = [place for place, stage in enumerate(tokens.stage_ids) if stage != PAD]
    if not drawn:
        return _NOTHING
    split, end = tokens.prompt_length, drawn[-1] + 1
    return _Drawn(
        list(tokens.ids[:split]),
        list(tokens.ids[split:end]),
        list(tokens.stage_ids[split:end]),
        list(tokens.logprobs[split:end]),
    )


def _habits(rollout: Rollout) -> RolloutHabits:
    reading = read_trajectory(rollout.trajectory)
    calls = [turn.call for turn in reading.turns if turn.call is not None]
    words = len((reading.answer or "").split())
    return RolloutHabits(words, len(calls), count_repeats(calls), not reading.rejects(Mode.STRICT))
