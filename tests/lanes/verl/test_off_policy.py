"""The off-policy correction: same tokens, same numbers in veRL's trainer and in the local one."""

import pytest
import torch
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_rejection_mask

from trainers.local.learner import LossSettings, PolicyTokens, importance_weights, kept_tokens, policy_loss

SAMPLED = [[-1.0, -2.0, -0.5, -3.0], [-1.0, -1.0, -4.0]]
"""Log-probabilities of two sequences as the engine reported them."""
POLICY = [[-0.9, -1.0, -0.5, -3.5], [-1.1, -1.0, -1.0]]
"""Under the policy; ratios e^0.1, e^1, 1, e^-0.5 and e^-0.1, 1, e^3."""


def padded(rows):
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)


MASK = padded([[1.0] * len(row) for row in SAMPLED])
FLAT = MASK.bool()


def verls(**options):
    """VeRL's weights, mask and metrics of these tokens."""
    proto, mask, metrics = compute_rollout_correction_and_rejection_mask(
        padded(POLICY), padded(SAMPLED), MASK, rollout_is_threshold=2.0, **options
    )
    return proto.batch["rollout_is_weights"][FLAT] if proto is not None else None, mask[FLAT], metrics


def ours() -> PolicyTokens:
    policy, sampled = padded(POLICY)[FLAT], padded(SAMPLED)[FLAT]
    ones = torch.ones_like(policy)
    stages = torch.zeros(len(policy), dtype=torch.long)
    sequences = torch.tensor([0, 0, 0, 0, 1, 1, 1])
    return PolicyTokens(policy, policy, policy, sampled, ones, stages, ones, sequences)


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_the_weights_are_veRLs(level):
    weights, _, _ = verls(rollout_is=level)
    assert torch.allclose(importance_weights(ours(), 2.0, level), weights, rtol=1e-6)


def test_by_hand():
    # e^0.1, min(e, 2), 1, e^-0.5; e^-0.1, 1, min(e^3, 2)
    expected = [1.10517, 2.0, 1.0, 0.60653, 0.90484, 1.0, 2.0]
    assert importance_weights(ours(), 2.0).tolist() == pytest.approx(expected, abs=1e-5)
    # sums 0.6 and 2.9: e^0.6, and e^2.9 cut to 2
    by_sequence = importance_weights(ours(), 2.0, "sequence").tolist()
    assert by_sequence == pytest.approx([1.82212] * 4 + [2.0] * 3, abs=1e-5)


def test_the_same_sequences_are_rejected():
    # means of e^r - r - 1: (0.0052 + 0.7183 + 0 + 0.1065) / 4 = 0.207, and (0.0048 + 0 + 16.0855) / 3 = 5.36
    _, mask, _ = verls(rollout_rs="seq_mean_k3", rollout_rs_threshold=1.0)
    assert kept_tokens(ours(), 1.0).tolist() == mask.tolist() == [1.0] * 4 + [0.0] * 3


def test_the_share_of_capped_tokens_and_the_divergence_are_veRLs():
    _, _, metrics = verls(rollout_is="token")
    # two of seven tokens; -(0.1 + 1 - 0.5 - 0.1 + 3) / 7 = -0.5
    assert metrics["rollout_corr/rollout_is_ratio_fraction_high"] == pytest.approx(2 / 7)
    assert metrics["rollout_corr/kl"] == pytest.approx(-0.5)


def test_the_loss_of_rejected_sequences_is_nothing_and_they_stay_in_the_denominator():
    settings = LossSettings(kl_coefficient=0.0, rejection=1.0)
    loss, _ = policy_loss(ours(), settings=settings, denominator=7)
    # four tokens of advantage 1 at a ratio of 1
    assert float(loss) == pytest.approx(-4 / 7)
