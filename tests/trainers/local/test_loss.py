"""The loss against numbers worked by hand, the paper's sum, and its own parts."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from rubricem_agent.learn.credit import NonFiniteLossError, assign_credit, spread_to_tokens
from rubricem_agent.learn.samples import Sample, pad_batch
from rubricem_agent.learn.stage_metrics import report_by_stage
from rubricem_env.domain.base import Stage
from trainers.local.learner import LossSettings, PolicyTokens, importance_weights, kl3, policy_loss

NO_KL = LossSettings(kl_coefficient=0.0)


def column(values) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def tokens(log_ratio, advantages, **changes) -> PolicyTokens:
    """Tokens whose old, reference and rollout log-probabilities are -1, unless changed."""
    old = torch.full((len(advantages),), -1.0, dtype=torch.float64)
    stages = torch.zeros(len(advantages), dtype=torch.int64)
    new = (old + column(log_ratio)).requires_grad_()
    made = PolicyTokens(new, old, new.detach(), old, column(advantages), stages, torch.zeros_like(old))
    return made._replace(**changes)


def random_tokens(count: int, seed: int = 0) -> PolicyTokens:
    generator = torch.Generator().manual_seed(seed)
    new, old, reference, rollout, advantages = torch.randn(5, count, dtype=torch.float64, generator=generator) * 0.3
    stages = torch.arange(count) % 4
    return PolicyTokens(new.requires_grad_(), old, reference, rollout, advantages, stages, torch.ones_like(old))


@pytest.mark.parametrize(
    ("ratio", "advantage", "surrogate", "is_clipped"),
    [
        (1.0, 2.0, 2.0, False),
        (1.5, 1.0, 1.2, True),  # min(1.5, 1.2): no more credit beyond 1 + 0.2
        (1.5, -1.0, -1.5, False),  # min(-1.5, -1.2): blame is not clipped here
        (0.5, 1.0, 0.5, False),  # min(0.5, 0.8)
        (0.5, -1.0, -0.8, True),  # min(-0.5, -0.8): no more blame below 1 - 0.2
        (1.5, 0.0, 0.0, False),
    ],
)
def test_the_surrogate_is_clipped_on_the_side_that_the_advantage_says(ratio, advantage, surrogate, is_clipped):
    made = tokens([math.log(ratio)], [advantage])
    loss, sums = policy_loss(made, settings=NO_KL, denominator=1)
    loss.backward()
    assert loss.item() == pytest.approx(-surrogate)
    assert sums[3, 0] == is_clipped
    assert made.new_logprobs.grad is not None
    # where it is not clipped, d(-rho A)/d new = -rho A
    assert made.new_logprobs.grad.item() == pytest.approx(0.0 if is_clipped else -ratio * advantage)


def test_kl3_of_a_reference_twice_as_likely_is_1_minus_log_2():
    # exp(log 2) - log 2 - 1 = 1 - log 2; and of one half as likely: 0.5 + log 2 - 1
    divergence = kl3(column([-1.0, -1.0]), column([-1.0 + math.log(2), -1.0 - math.log(2)]))
    assert divergence.tolist() == pytest.approx([1 - math.log(2), math.log(2) - 0.5])


def test_truncated_importance_sampling_weighs_by_old_over_rollout_up_to_its_cap():
    # old / rollout = 3, 1/2; capped at 2: 2, 1/2. Loss: -(2 * 1 + 0.5 * 1)
    made = tokens([0.0, 0.0], [1.0, 1.0], rollout_logprobs=column([-1 - math.log(3), -1 + math.log(2)]))
    assert importance_weights(made, 2.0).tolist() == pytest.approx([2.0, 0.5])
    settings = LossSettings(kl_coefficient=0.0, importance_cap=2.0)
    assert policy_loss(made, settings=settings, denominator=1)[0].item() == pytest.approx(-2.5)


def test_the_token_mean_divides_by_all_policy_tokens_and_the_equation_by_the_rollouts():
    # two rollouts, of 1 and 3 tokens, A = 1 and -1: the token sum of -A is -1 + 3 = 2
    made = tokens([0.0] * 4, [1.0, -1.0, -1.0, -1.0])
    mean, equation = NO_KL, LossSettings(kl_coefficient=0.0, aggregation="seq-mean-token-sum")
    assert mean.denominator(4, 2) == 4
    assert equation.denominator(4, 2) == 2
    assert policy_loss(made, settings=mean, denominator=4)[0].item() == pytest.approx(0.5)
    assert policy_loss(made, settings=equation, denominator=2)[0].item() == pytest.approx(1.0)


def test_an_empty_batch_has_a_denominator_and_a_loss_of_zero_that_can_be_differentiated():
    made = tokens([], [])
    loss = policy_loss(made, settings=LossSettings(), denominator=LossSettings().denominator(0, 0))[0]
    loss.backward()
    assert loss.item() == 0.0


@pytest.mark.parametrize("cuts", [(1, 39), (10, 10, 20), (40, 0)])
def test_micro_batches_add_up_to_the_whole_in_loss_gradient_and_report(cuts):
    settings = LossSettings(kl_coefficient=0.1, importance_cap=1.5)
    whole = random_tokens(40)
    whole_loss, whole_sums = policy_loss(whole, settings=settings, denominator=40)
    whole_loss.backward()
    parted = random_tokens(40)
    pieces = zip(*(values.split(cuts) for values in parted if values is not None), strict=True)
    parts = [policy_loss(PolicyTokens(*piece), settings=settings, denominator=40) for piece in pieces]
    sum(loss for loss, _ in parts).backward()
    assert sum(loss.item() for loss, _ in parts) == pytest.approx(whole_loss.item(), rel=1e-12)
    torch.testing.assert_close(parted.new_logprobs.grad, whole.new_logprobs.grad)
    torch.testing.assert_close(sum(sums for _, sums in parts), whole_sums)


def test_the_loss_is_the_papers_sum_over_rollouts_stages_and_tokens():
    scores = [[1.0, 0.5, 0.0, 1.0], [0.0, 0.5, 1.0, 0.5], [0.2, 0.1, 0.3, 0.0]]
    stage_ids = np.array([[-1, 0, 1, -1, 2, 3], [-1, 0, 0, 1, -1, 3], [-1, 0, -1, 1, 2, 2]], dtype=np.int8)
    earned = assign_credit(scores).advantages
    spread = spread_to_tokens(earned, stage_ids)
    made = [Sample(range(6), ids, row, [-1.0] * 6, 1.0, 0) for ids, row in zip(stage_ids, spread, strict=True)]
    batch = pad_batch(made, pad_id=0)
    positions = batch.policy_positions()
    log_ratio = np.linspace(-0.4, 0.4, batch.num_policy_tokens)
    stages = torch.from_numpy(batch.stage_ids[positions]).long()
    policy = tokens(log_ratio, batch.advantages[positions])._replace(stage_ids=stages)
    settings = LossSettings(kl_coefficient=0.0, aggregation="seq-mean-token-sum")
    expected = 0.0
    for change, row, column_ in zip(log_ratio, *positions, strict=True):
        advantage = float(np.float32(earned[row, stage_ids[row, column_]]))
        rho = math.exp(change)
        expected -= min(rho * advantage, min(max(rho, 0.8), 1.2) * advantage) / 3
    got = policy_loss(policy, settings=settings, denominator=settings.denominator(len(log_ratio), 3))[0].item()
    assert got == pytest.approx(expected)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("field", ["new_logprobs", "old_logprobs", "reference_logprobs", "advantages", "entropy"])
def test_a_number_that_is_none_is_refused_and_named(field, bad):
    made = tokens([0.0, 0.0], [1.0, 1.0])._replace(**{field: column([bad, -1.0])})
    with pytest.raises(NonFiniteLossError) as refusal:
        policy_loss(made, settings=LossSettings(), denominator=2)
    assert f"1 of 2 policy tokens have {field.replace('_', ' ')} that are NaN or infinite" in str(refusal.value)


def test_a_sum_that_overflows_is_refused():
    made = tokens([0.0, 0.0], [1.7e308, 1.7e308])
    with pytest.raises(NonFiniteLossError, match="the loss of 2 policy tokens is -inf; the step is refused"):
        policy_loss(made, settings=NO_KL, denominator=1)


def test_log_ratios_beyond_all_reason_give_a_finite_loss_and_gradient():
    made = tokens([800.0, -800.0], [1.0, -1.0], reference_logprobs=column([900.0, -900.0]))
    policy_loss(made, settings=LossSettings(), denominator=2)[0].backward()
    assert torch.isfinite(made.new_logprobs.grad).all()


def test_each_stage_reports_its_entropy_kl_clip_and_share_of_the_loss():
    # plan: two tokens, A = 1 at ratio 1.5 (clipped: loss -1.2) and A = -1 at ratio 1 (loss 1); answer: A = 0.8
    made = tokens([math.log(1.5), 0.0, 0.0], [1.0, -1.0, 0.8])
    made = made._replace(
        stage_ids=torch.tensor([0, 0, 3]),
        entropy=column([1.0, 2.0, 0.5]),
        reference_logprobs=made.new_logprobs.detach() + column([math.log(2), 0.0, 0.0]),
    )
    report = report_by_stage(policy_loss(made, settings=NO_KL, denominator=3)[1].tolist())
    assert list(report) == [Stage.PLAN, Stage.ANSWER]
    plan, answer = report.values()
    assert (plan.tokens, plan.entropy, plan.clip_share) == (2, 1.5, 0.5)
    assert plan.kl == pytest.approx((1 - math.log(2)) / 2)
    assert plan.loss_share == pytest.approx(2.2 / 3.0)  # |-1.2| + |1| of 1.2 + 1 + 0.8
    assert answer.loss_share == pytest.approx(0.8 / 3.0)


def test_a_loss_of_nothing_but_zeros_has_no_shares():
    report = report_by_stage(policy_loss(tokens([0.0], [0.0]), settings=NO_KL, denominator=1)[1].tolist())
    assert report[Stage.PLAN].loss_share == 0.0
