"""A batch whose loss is no number ends the run, changes no weight, and is left for inspection."""

import asyncio

import numpy as np
import pytest
import torch

from rubricem_agent.learn.credit import NonFiniteLossError
from rubricem_agent.learn.samples import Sample
from trainers.local.run import make_run
from trainers.local.updates import update


def sample(advantage: float) -> Sample:
    return Sample([5, 6, 7, 8], [-1, -1, 0, 0], np.array([0, 0, advantage, advantage], np.float32), [0.0] * 4, 1.0, 0)


def test_a_loss_that_is_no_number_ends_the_step_and_leaves_its_batch(config):
    run = make_run(config)
    config.out.mkdir(parents=True, exist_ok=True)
    weights = list(run.learner.policy.parameters())
    with torch.no_grad():
        weights[0][5] = float("nan")  # the embedding of a token of the prompt
    before = [weight.detach().clone() for weight in weights]

    with pytest.raises(NonFiniteLossError):
        update(run, [sample(1.0), sample(-1.0)], 3)
    asyncio.run(run.policy.aclose())

    saved = np.load(config.out / "refused-step-3.npz")
    assert saved["token_ids"].tolist() == [[5, 6, 7, 8]] * 2
    assert saved["advantages"].tolist() == [[0, 0, 1, 1], [0, 0, -1, -1]]
    assert run.learner.updates == 0
    for earlier, weight in zip(before, weights, strict=True):
        torch.testing.assert_close(earlier, weight, rtol=0, atol=0, equal_nan=True)


def test_without_samples_nothing_is_updated(config):
    run = make_run(config)
    assert update(run, [], 1) is None
    asyncio.run(run.policy.aclose())
    assert run.learner.updates == 0
