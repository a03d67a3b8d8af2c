"""Samples of the local trainer's form as rows of veRL's training queue: Phase A trains on them."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from rubricem_agent.learn.batch import PAD, Sample


class PhaseRow(NamedTuple):
    """One sample: what veRL reads of it, and its advantages, which are put in after the rows have been padded."""

    fields: dict[str, Any]
    tag: dict[str, Any]
    advantages: npt.NDArray[np.float32]
    """Of the response's tokens."""


def phase_row(sample: Sample, *, uid: str, step: int) -> PhaseRow:
    """A sample as veRL's agent loop would have handed it in: response from the policy's first token on."""
    stages = np.asarray(sample.stage_ids)
    ids = torch.as_tensor(np.asarray(sample.token_ids), dtype=torch.int64)
    split = int(np.argmax(stages != PAD))
    mask = torch.as_tensor(stages[split:] != PAD).to(torch.int64)
    logprobs = torch.as_tensor(np.asarray(sample.rollout_logprobs)[split:], dtype=torch.float32)
    fields = {
        "uid": uid,
        "prompts": ids[:split],
        "responses": ids[split:],
        "response_mask": mask,
        "loss_mask": mask,
        "input_ids": ids,
        "position_ids": torch.arange(len(ids), dtype=torch.int64),
        "rollout_log_probs": logprobs,
        "rm_scores": torch.zeros(len(mask), dtype=torch.float32),
        "multi_modal_inputs": {},
        "extra_fields": {},
        "num_turns": 1,
    }
    tag = {
        "status": "success",
        "prompt_len": split,
        "response_len": len(mask),
        "seq_len": len(ids),
        "global_steps": step,
        "min_global_steps": sample.policy_version,
        "max_global_steps": sample.policy_version,
    }
    return PhaseRow(fields, tag, np.asarray(sample.advantages, dtype=np.float32)[split:])
