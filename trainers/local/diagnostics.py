"""Do the two phases pull the same way? The cosine between the task's gradient and the reflections'.

The paper shares one policy between researching and reflecting and assumes that each helps the other. Where the
cosine stays below zero, they do not. Both gradients are taken at the same weights, before either phase.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from rubricem_agent.learn.batch import Batch
from rubricem_agent.learn.errors import NonFiniteLossError
from trainers.local.learner import Learner


class GradientComparison(NamedTuple):
    """Two gradients of one model."""

    cosine: float
    """From -1 to 1; 0 where either gradient is 0."""
    task_norm: float
    """Before clipping."""
    reflection_norm: float


def compare_gradients(learner: Learner, *, task: Batch, reflection: Batch) -> GradientComparison | None:
    """Measure; the weights, the optimiser and the next updates are as if nothing had been measured.

    None where a gradient is no number: the update that follows refuses its batch and says so.
    """
    try:
        of_task, of_reflection = _gradient(learner, task), _gradient(learner, reflection)
    except NonFiniteLossError:
        return None
    task_norm, reflection_norm, dot = _norm(of_task), _norm(of_reflection), _dot(of_task, of_reflection)
    if not math.isfinite(task_norm + reflection_norm + dot):
        return None
    product = task_norm * reflection_norm
    return GradientComparison(dot / product if product > 0 else 0.0, task_norm, reflection_norm)


def _gradient(learner: Learner, batch: Batch) -> list[Tensor]:
    """A parameter that the loss does not reach has a gradient of 0."""
    learner.accumulate_gradient(batch)
    found = [torch.zeros_like(one) if one.grad is None else one.grad for one in learner.policy.parameters()]
    learner.optimizer.zero_grad(set_to_none=True)
    return found


def _dot(one: list[Tensor], other: list[Tensor]) -> float:
    return sum(float((a.double() * b.double()).sum()) for a, b in zip(one, other, strict=True))


def _norm(gradient: list[Tensor]) -> float:
    return math.sqrt(_dot(gradient, gradient))
