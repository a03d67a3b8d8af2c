"""Diagnostics measure and change nothing; rollout_stats count what they say."""

import copy

import numpy as np
import pytest
import torch

from rubricem_agent.learn.samples import Sample, pad_batch
from rubricem_env.testing.tiny_model import tiny_qwen3
from trainers.local.learner import Learner, LossSettings, compare_gradients

VOCABULARY = 32


def learner(model=None):
    return Learner(
        model or tiny_qwen3(VOCABULARY),
        learning_rate=1e-2,
        loss=LossSettings(kl_coefficient=0.0),
        max_grad_norm=1.0,
        micro_batch_tokens=64,
    )


def batch(seed, *, advantage=1.0):
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, VOCABULARY, size=(3, 8))
    stages = np.where(np.arange(8) < 2, -1, 3)
    return pad_batch(
        [
            Sample(
                token_ids=row,
                stage_ids=stages,
                advantages=np.full(8, advantage, dtype=np.float32),
                rollout_logprobs=np.full(8, -1.0),
                temperature=1.0,
                policy_version=0,
            )
            for row in ids
        ],
        pad_id=0,
    )


def test_a_gradient_against_itself_has_the_cosine_1_and_against_its_opposite_minus_1():
    same = compare_gradients(learner(), task=batch(0), reflection=batch(0))
    opposite = compare_gradients(learner(), task=batch(0), reflection=batch(0, advantage=-2.0))

    assert same.cosine == pytest.approx(1.0)
    # Twice the advantage is twice the gradient, the other way round: the cosine knows no length.
    assert opposite.cosine == pytest.approx(-1.0)
    assert opposite.reflection_norm == pytest.approx(2 * opposite.task_norm, rel=1e-4)


def test_the_cosine_is_that_of_the_gradients_by_autograd():
    one = learner()
    one.accumulate_gradient(batch(0))
    task = torch.cat([p.grad.flatten().clone() for p in one.policy.parameters()])
    one.accumulate_gradient(batch(1))
    reflection = torch.cat([p.grad.flatten().clone() for p in one.policy.parameters()])

    found = compare_gradients(one, task=batch(0), reflection=batch(1))

    assert found.cosine == pytest.approx(float(torch.cosine_similarity(task, reflection, dim=0)), rel=1e-5)
    assert found.task_norm == pytest.approx(float(task.norm()), rel=1e-5)


def test_no_advantage_gives_a_gradient_of_0_and_a_cosine_of_0():
    found = compare_gradients(learner(), task=batch(0), reflection=batch(1, advantage=0.0))

    assert (found.cosine, found.reflection_norm) == (0.0, 0.0)


def test_measuring_changes_no_update():
    model = tiny_qwen3(VOCABULARY)
    measured, plain = learner(copy.deepcopy(model)), learner(copy.deepcopy(model))
    for step in range(3):
        compare_gradients(measured, task=batch(step), reflection=batch(step + 10))
        reports = [one.update(batch(step)) for one in (measured, plain)]
        assert reports[0] == reports[1]

    pairs = zip(measured.policy.parameters(), plain.policy.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_a_gradient_that_is_no_number_is_left_to_the_update_to_refuse():
    model = tiny_qwen3(VOCABULARY)
    with torch.no_grad():
        model.lm_head.weight[0] = float("nan")

    assert compare_gradients(learner(model), task=batch(0), reflection=batch(1)) is None
