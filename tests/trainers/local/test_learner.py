"""One optimiser step: it moves the weights the right way, however the batch is cut, or not at all."""

import math

import numpy as np
import pytest
import torch

from rubricem_agent.learn.credit import NonFiniteLossError
from rubricem_agent.learn.samples import Batch, Sample, pad_batch
from rubricem_env.testing.tiny_model import tiny_qwen3
from trainers.local.learner import Learner, LossSettings

VOCABULARY = 40


def learner(*, micro_batch_tokens: int = 1_000, threads: int = 1) -> Learner:
    torch.manual_seed(0)
    return Learner(
        tiny_qwen3(VOCABULARY),
        learning_rate=1e-2,
        loss=LossSettings(),
        max_grad_norm=100.0,
        micro_batch_tokens=micro_batch_tokens,
        threads=threads,
    )


def batch(advantage: float = 1.0) -> Batch:
    def sample(ids: list[int], sign: float) -> Sample:
        stages = [-1, -1, *[0] * (len(ids) - 2)]
        advantages = np.array([0, 0, *[sign * advantage] * (len(ids) - 2)], dtype=np.float32)
        return Sample(ids, stages, advantages, [0.0] * len(ids), 1.0, 0)

    return pad_batch([sample([5, 6, 7, 8], 1.0), sample([5, 6, 9], -1.0)], pad_id=0)


def probability(model: torch.nn.Module, ids: list[int], target: int) -> float:
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids])).logits[0, -1]
    return float(logits.softmax(-1)[target])


def test_a_step_makes_the_better_continuation_likelier_and_the_worse_one_less_so():
    trained = learner()
    before = [probability(trained.policy, [5, 6], target) for target in (7, 9)]
    trained.update(batch())
    after = [probability(trained.policy, [5, 6], target) for target in (7, 9)]
    assert after[0] > before[0]
    assert after[1] < before[1]


def test_how_the_batch_is_cut_does_not_change_the_step():
    whole, cut = learner(), learner(micro_batch_tokens=4)
    reports = [whole.update(batch()), cut.update(batch())]
    assert reports[0].loss == pytest.approx(reports[1].loss, abs=1e-6)
    for left, right in zip(whole.policy.parameters(), cut.policy.parameters(), strict=True):
        assert torch.allclose(left, right, atol=1e-5)


def test_threads_change_no_bit_of_the_step():
    # 12 samples of 3 or 4 tokens, one in a pack.
    many = batch().select([0, 1] * 6)
    one, two = learner(micro_batch_tokens=4), learner(micro_batch_tokens=4, threads=2)
    assert one.update(many) == two.update(many)
    for left, right in zip(one.policy.parameters(), two.policy.parameters(), strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_advantage_that_is_infinite_leaves_the_weights_untouched(threads):
    trained = learner(micro_batch_tokens=4, threads=threads)
    before = [parameter.clone() for parameter in trained.policy.parameters()]
    broken = batch()
    broken.advantages[0, 2] = np.inf
    with pytest.raises(NonFiniteLossError):
        trained.update(broken)
    assert all(torch.equal(old, new) for old, new in zip(before, trained.policy.parameters(), strict=True))
    assert trained.updates == 0


def one_likelier_token(logit: float) -> torch.nn.Module:
    """A model whose logits are 1 for every token but token 0, which has `logit`, whatever was read before."""
    model = tiny_qwen3(VOCABULARY)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        embedding = model.model.embed_tokens.weight.zero_()
        embedding[:, 0] = 1.0
        embedding[0, 0] = logit
        # The last norm makes (1, 0, ...) of 32 numbers as long as the root of 32.
        model.model.norm.weight.fill_(32**-0.5)
    return model


def test_reflections_have_a_kl_of_their_own_for_their_update_alone():
    trained = Learner(
        one_likelier_token(1.0),
        learning_rate=1e-9,
        loss=LossSettings(kl_coefficient=0.1),
        max_grad_norm=100.0,
        micro_batch_tokens=1_000,
    )
    trained.policy.load_state_dict(one_likelier_token(1.0 + math.log(3)).state_dict())

    own, usual = trained.update(batch(0.0), kl_coefficient=0.5), trained.update(batch(0.0))

    # The reference gives each of 40 tokens 1/40; the policy 3/42 to token 0 and 1/42 to the others, which the samples
    # have. So the estimator is 42/40 - ln(42/40) - 1 for each of the three tokens, and the advantages are 0.
    divergence = 42 / 40 - math.log(42 / 40) - 1
    assert own.loss == pytest.approx(0.5 * divergence, rel=1e-3)
    assert usual.loss == pytest.approx(0.1 * divergence, rel=1e-3)
    assert usual.stages["plan"].kl == pytest.approx(divergence, rel=1e-3)
