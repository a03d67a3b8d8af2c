"""Rows of veRL's training batch, made of finished episodes and of reflections; each carries its token advantages.

An episode whose context was folded has a row for each window. veRL gives an agent loop's outputs the keys `uid_i_j`,
for output j of attempt i at question uid, and takes, evicts and clears the rows of a question together.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from rubricem_agent.learn.curriculum import Encounter
from rubricem_agent.learn.samples import Sample
from rubricem_agent.policy.tokens import PolicyTokenizer
from rubricem_env.domain.trajectory import Origin, Query
from rubricem_records.rollouts.rollout_tokens import NO_STAGE, RolloutTokens
from rubricem_records.rollouts.rollouts import Rollout

OURS = "rubricem"
"""Our key among veRL's extra fields: the row's group, and the stage of each token of its response."""


class ScheduledQuery(NamedTuple):
    """A question at one step of the curriculum."""

    query: Query
    step: int
    """Of the curriculum, from 1."""
    encounter: Encounter


def episode_rows(
    rollout: Rollout,
    advantages: npt.NDArray[np.floating] | None,
    *,
    group: str,
    tokenizer: PolicyTokenizer,
    versions: tuple[int, int],
    opening: list[int] | None = None,
) -> list[dict[str, Any]]:
    """The fields of `CreditedOutput` for each window of a rollout in which the policy wrote.

    `versions` are the first and last weights that sampled it. `advantages` has one entry for each token of the rollout.
    None is a rollout that teaches nothing: its row is a masked end token as prompt and as response, so that it counts
    in no mean of the loss.

    `opening` stands in the place of the rollout's own: the response's sampled log-probabilities stay.

    A response ends with the policy's last token. A tool's answer after it is not trained on, and no engine limits its
    length: a row longer than what the workers take at once would stop the run.
    """
    end_id = min(tokenizer.end_ids, default=0)
    rows = [_WindowRow([end_id], [end_id], [0.0], np.array([NO_STAGE], dtype=np.int8), np.zeros(1))]
    if rollout.tokens is not None and advantages is not None:
        rows = [_window_row(rollout.tokens, advantages, window, opening) for window in rollout.tokens.written_windows]
    return [
        {
            "prompt_ids": row.prompt,
            "response_ids": row.response,
            "response_mask": (row.stages != NO_STAGE).astype(int).tolist(),
            "response_logprobs": row.logprobs,
            "token_advantages": row.advantages.tolist(),
            "num_turns": sum(segment.origin is Origin.POLICY for segment in rollout.trajectory.segments),
            "extra_fields": {
                OURS: {"group": group, "stages": row.stages},
                "min_global_steps": versions[0],
                "max_global_steps": versions[1],
                "reward_extra_info": {},
            },
        }
        for row in rows
    ]


class _WindowRow(NamedTuple):
    """A window as veRL has it: a prompt, and a response with an entry in each column for each of its tokens."""

    prompt: list[int]
    response: list[int]
    logprobs: list[float]
    stages: npt.NDArray[np.int8]
    advantages: npt.NDArray[np.floating]


def _window_row(
    tokens: RolloutTokens, advantages: npt.NDArray[np.floating], window: slice, opening: list[int] | None
) -> _WindowRow:
    stages = np.array(tokens.stage_ids[window], dtype=np.int8)
    written = np.flatnonzero(stages != NO_STAGE)
    first, end = int(written[0]), int(written[-1]) + 1
    drawn = slice(window.start + first, window.start + end)
    prompt = list(tokens.ids[window.start : drawn.start])
    if opening:
        prompt = [*opening, *tokens.ids[tokens.after_opening(window).start : drawn.start]]
    return _WindowRow(
        prompt, list(tokens.ids[drawn]), list(tokens.logprobs[drawn]), stages[first:end], advantages[drawn]
    )


def reflection_row(sample: Sample, *, uid: str, step: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields and tag of a reflection in veRL's queue, in the layout of an agent loop's rows.

    The response begins with the policy's first token, after `tag["prompt_len"]` tokens.
    """
    stages = np.asarray(sample.stage_ids)
    ids = torch.as_tensor(np.asarray(sample.token_ids), dtype=torch.int64)
    start = int(np.argmax(stages != NO_STAGE))
    mask = torch.as_tensor(stages[start:] != NO_STAGE).to(torch.int64)
    fields = {
        "uid": uid,
        "prompts": ids[:start],
        "responses": ids[start:],
        "response_mask": mask,
        "loss_mask": mask,
        "input_ids": ids,
        "position_ids": torch.arange(len(ids), dtype=torch.int64),
        "rollout_log_probs": torch.as_tensor(np.asarray(sample.rollout_logprobs)[start:], dtype=torch.float32),
        "rm_scores": torch.as_tensor(np.asarray(sample.advantages)[start:], dtype=torch.float32),
        "multi_modal_inputs": {},
        "extra_fields": {},
        "num_turns": 1,
    }
    tag = {
        "status": "success",
        "prompt_len": start,
        "response_len": len(mask),
        "seq_len": len(ids),
        "global_steps": step,
        "min_global_steps": sample.policy_version,
        "max_global_steps": sample.policy_version,
    }
    return fields, tag
