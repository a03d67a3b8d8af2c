# ruff: noqa
# mypy: disable-error-code="type-arg"
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

Messages: TypeAlias = list[dict[str, str]]

@dataclass
class RolloutSample:
    prompt: Messages
    completion: Messages
    input_ids: np.ndarray
    completion_mask: np.ndarray
    old_log_probs: np.ndarray
    advantage: float
    model_version: int
    group_id: int
    metrics: dict[str, float]
    enqueued_at: float | None = None
