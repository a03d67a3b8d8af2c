"""Rows of veRL's training batch: made of finished episodes and of reflections, credited by `learn/credit`."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from rubricem_agent.learn.credit import Credit, assign_credit, count_tokens, spread_to_tokens
from rubricem_agent.learn.credit_methods import CreditMode
from rubricem_agent.learn.curriculum import Encounter
from rubricem_agent.learn.metrics import count_repeats
from rubricem_agent.learn.samples import Sample
from rubricem_agent.policy.tokens import PolicyTokenizer
from rubricem_agent.rollout.rollout import Rollout
from rubricem_agent.rollout.tokens import NO_STAGE, pad_rows
from rubricem_env.domain.errors import JudgeError
from rubricem_env.domain.trajectory import Origin, Query

OURS = "rubricem"
"""Our key among veRL's extra fields."""
Four = tuple[float, float, float, float]
"""One number per stage: plan, research, review, answer."""


class ScheduledQuery(NamedTuple):
    """A question at one step of the curriculum."""

    query: Query
    step: int
    """Of the curriculum, from 1."""
    encounter: Encounter


class RolloutScores(NamedTuple):
    """The scores of a rollout, known once its whole group has been judged."""

    scores: Four
    """As credit takes them: 0 for a stage that is missing or that the judge could not score."""
    judged: tuple[float | None, float | None, float | None, float | None]
    """As the judge gave them; None where it gave none."""
    is_valid: bool
    """False where the judge or the world failed: left out of the group's statistics and of the loss."""
    failure: str = ""
    """Why it is not valid, in one sentence."""
    true: Four | None = None
    """By the truth, in the almanac: recorded to audit the judge, never trained on."""
    scored: tuple[bool, ...] = (True, True, True, True)
    """False where scoring the stage failed, so that the group's mean stands in."""


class CreditInputs:
    """What credit and metrics need of a row; travels with it, and is small except for the stage ids.

    Not a NamedTuple: veRL dumps its rows through pydantic, which would turn one into a plain tuple.
    """

    def __init__(
        self,
        scores: RolloutScores,
        stage_ids: npt.NDArray[np.int8],
        *,
        encounter: str,
        answer_words: int,
        calls: int,
        repeated_calls: int,
        is_strict: bool,
    ) -> None:
        self.scores = scores
        self.stage_ids = stage_ids
        """Of the response's tokens: 0 to 3 where the policy wrote, -1 elsewhere."""
        self.encounter = encounter
        self.answer_words = answer_words
        self.calls = calls
        self.repeated_calls = repeated_calls
        self.is_strict = is_strict
        """Whether strict mode accepts the rollout."""


def episode_row(
    rollout: Rollout, scores: RolloutScores, *, tokenizer: PolicyTokenizer, versions: tuple[int, int], encounter: str
) -> dict[str, Any]:
    """The fields of veRL's `AgentLoopOutput` for a rollout; `versions` are the first and last weights that sampled it.

    The response ends with the policy's last token. A tool's answer after it is not trained on, and no engine limits its
    length: a row longer than what the workers take at once would stop the run. A rollout without a sampled token gets
    a masked end token as prompt and as response.
    """
    end_id = min(tokenizer.end_ids, default=0)
    prompt, response, stages, logprobs = [end_id], [end_id], [NO_STAGE], [0.0]
    tokens = rollout.tokens
    sampled = [] if tokens is None else [index for index, stage in enumerate(tokens.stage_ids) if stage != NO_STAGE]
    if tokens is not None and sampled:
        start, end = tokens.prompt_length, sampled[-1] + 1
        prompt, response = list(tokens.ids[:start]), list(tokens.ids[start:end])
        stages, logprobs = list(tokens.stage_ids[start:end]), list(tokens.logprobs[start:end])
    stage_ids = np.array(stages, dtype=np.int8)
    reading = rollout.reading
    calls = [turn.call for turn in reading.turns if turn.call is not None]
    inputs = CreditInputs(
        scores,
        stage_ids,
        encounter=encounter,
        answer_words=len((reading.answer or "").split()),
        calls=len(calls),
        repeated_calls=count_repeats(calls),
        is_strict=not reading.rejections,
    )
    return {
        "prompt_ids": prompt,
        "response_ids": response,
        "response_mask": (stage_ids != NO_STAGE).astype(int).tolist(),
        "response_logprobs": logprobs,
        "num_turns": sum(segment.origin is Origin.POLICY for segment in rollout.trajectory.segments),
        "extra_fields": {
            OURS: inputs,
            "min_global_steps": versions[0],
            "max_global_steps": versions[1],
            "reward_extra_info": {},
        },
    }


def reflection_row(sample: Sample, *, uid: str, step: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields and tag of a reflection in veRL's queue, in the layout of an agent loop's rows.

    The response begins with the policy's first token, after `tag["prompt_len"]` tokens. Advantages are written later,
    once veRL has padded the rows.
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
        "rm_scores": torch.zeros(len(mask), dtype=torch.float32),
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


def credit_rows(
    rows: Sequence[CreditInputs], groups: Sequence[str], *, mode: CreditMode, matrix: npt.ArrayLike
) -> Credit:
    """The credit of a step's rows, in their order; `groups` names the group of each."""
    _, members = np.unique(np.asarray(groups), return_inverse=True)
    return assign_credit(
        np.array([row.scores.scores for row in rows]).reshape(len(rows), -1),
        groups=members,
        valid=np.array([row.scores.is_valid for row in rows], dtype=bool),
        mode=mode,
        matrix=matrix,
        scored=np.array([row.scores.scored for row in rows], dtype=bool).reshape(len(rows), -1),
        tokens=count_tokens(pad_rows([row.stage_ids for row in rows], NO_STAGE, dtype=np.int8)),
    )


def token_advantages(advantages: npt.ArrayLike, stage_ids: npt.NDArray[np.integer]) -> npt.NDArray[np.float32]:
    """The stage advantages of one row spread over its response, (tokens,)."""
    spread: npt.NDArray[np.float32] = spread_to_tokens(np.asarray(advantages)[None], stage_ids[None])[0]
    return spread


def refuse_outage(rows: Sequence[CreditInputs], limit: float) -> None:
    """Stop where the judge or the world lost more than `limit` of a step's rollouts (choice B7).

    Raises:
        JudgeError: the message counts them and quotes the first reason.
    """
    lost = [row.scores.failure for row in rows if not row.scores.is_valid]
    if len(lost) > limit * len(rows):
        raise JudgeError(
            f"{len(lost)} of the step's {len(rows)} rollouts were lost; more than {limit:.0%} stop the run, because a "
            f"policy must not learn from the rest. First failure: {lost[0]}. Fix the cause and start again: the run "
            "resumes from its last checkpoint."
        )
