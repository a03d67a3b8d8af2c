"""The weights and what changes them: one optimiser step on a batch, against a frozen reference.

The loss of SS-GRPO: a clipped surrogate on stage advantages, with KL to a frozen reference (paper, eq. 3).

For policy token t of rollout i in stage k, with A the stage's advantage, eta the clip range and beta the KL
coefficient:

    rho_t  = exp(new_t - old_t)
    loss_t = -min(rho_t A_{i,k}, clip(rho_t, 1 - eta, 1 + eta) A_{i,k}) + beta KL3_t
    KL3_t  = exp(ref_t - new_t) - (ref_t - new_t) - 1

The sum over tokens is divided by a denominator of the GLOBAL batch, handed in, so that micro-batches add up to
the whole exactly. No value function, no entropy bonus, no length penalty.

Do the two phases pull the same way? The cosine between the task's gradient and the reflections'.

The paper shares one policy between researching and reflecting and assumes that each helps the other. Where the
cosine stays below zero, they do not. Both gradients are taken at the same weights, before either phase.
"""

import copy
import math
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from transformers import Qwen3ForCausalLM

from rubricem_agent.learn.credit import NonFiniteLossError
from rubricem_agent.learn.samples import Batch, FlatTokens
from rubricem_env.domain.base import NUM_STAGES, STAGES, Frozen, Stage
from trainers.local.packed_qwen3 import (
    Pack,
    TokenLogprobs,
    pack_samples,
    packed_hidden,
    refuse_sliding_window,
    token_logprobs,
)

Aggregation = Literal["token-mean", "seq-mean-token-sum"]
LOG_RATIO_LIMIT = 20.0
"""Log ratios beyond it are held there, as veRL holds them: e^20 squared still fits float32."""
KL_LIMIT = 10.0


class LossSettings(Frozen):
    """The constants of the loss; the paper's, or DR Tulu's where it names none (choices D2-D5)."""

    clip_low: Annotated[float, Field(gt=0, lt=1)] = 0.2
    clip_high: Annotated[float, Field(gt=0)] = 0.2
    kl_coefficient: Annotated[float, Field(ge=0)] = 0.001
    aggregation: Aggregation = "token-mean"
    """`token-mean`: all policy tokens of the batch weigh the same. `seq-mean-token-sum`: the equation's 1/n sum."""
    importance_cap: Annotated[float, Field(gt=0)] | None = None
    """Truncated importance sampling: weigh a token by min(exp(old - rollout), cap). None: no correction."""

    def denominator(self, num_tokens: int, num_sequences: int) -> int:
        """What the token sum is divided by, from the counts of the global batch; at least 1."""
        return max(1, num_tokens if self.aggregation == "token-mean" else num_sequences)


class PolicyTokens(NamedTuple):
    """The policy's tokens of a micro-batch, flat: each field has the shape (tokens,)."""

    new_logprobs: Tensor
    """Under the weights being trained; the only field with a gradient."""
    old_logprobs: Tensor
    """Under the weights at the start of the step, recomputed by the trainer."""
    reference_logprobs: Tensor
    rollout_logprobs: Tensor
    """As the sampling engine reported them."""
    advantages: Tensor
    stage_ids: Tensor
    """0 to 3, int64."""
    entropy: Tensor


class StageSums(NamedTuple):
    """Sums over the tokens of each stage, (num_stages,) each; those of micro-batches add up."""

    tokens: Tensor
    entropy: Tensor
    kl: Tensor
    clipped: Tensor
    magnitude: Tensor
    """Sum of |loss_t|: signed losses of good and bad rollouts would cancel."""


class PolicyLoss(NamedTuple):
    """A micro-batch's part of the global loss, and what to report of it."""

    loss: Tensor
    sums: StageSums


def policy_loss(tokens: PolicyTokens, *, settings: LossSettings, denominator: int) -> PolicyLoss:
    """The micro-batch's share of the loss. Zero, and differentiable, without tokens.

    Raises:
        NonFiniteLossError: something in it is NaN or infinite; apply no gradient and save the batch.
    """
    refuse_non_finite(tokens)
    surrogate, is_clipped = clipped_surrogate(tokens, settings)
    divergence = kl3(tokens.new_logprobs, tokens.reference_logprobs)
    per_token = settings.kl_coefficient * divergence - surrogate
    loss = per_token.sum() / denominator
    if not bool(torch.isfinite(loss.detach())):
        raise NonFiniteLossError(f"the loss of {len(per_token)} policy tokens is {loss.item()}; the step is refused.")
    return PolicyLoss(
        loss, _sum_by_stage(tokens, per_token.detach(), divergence=divergence.detach(), is_clipped=is_clipped)
    )


def clipped_surrogate(tokens: PolicyTokens, settings: LossSettings) -> tuple[Tensor, Tensor]:
    """min(rho A, clip(rho) A) for each token, and whether the clip is what it returned (so: no gradient)."""
    log_ratio = (tokens.new_logprobs - tokens.old_logprobs).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    ratio = log_ratio.exp()
    free = ratio * tokens.advantages
    held = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high) * tokens.advantages
    surrogate = torch.minimum(free, held)
    if settings.importance_cap is not None:
        surrogate = surrogate * importance_weights(tokens, settings.importance_cap)
    return surrogate, held.detach() < free.detach()


def importance_weights(tokens: PolicyTokens, cap: float) -> Tensor:
    """min(exp(old - rollout), cap): how far the sampling engine's distribution is from the trainer's."""
    gap = (tokens.old_logprobs - tokens.rollout_logprobs).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    return gap.exp().clamp(max=cap).detach()


def kl3(new_logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """Schulman's third estimator of KL(new || reference): never negative, unbiased for samples of the new policy."""
    gap = (reference_logprobs - new_logprobs).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    return (gap.exp() - gap - 1).clamp(max=KL_LIMIT)


def refuse_non_finite(tokens: PolicyTokens) -> None:
    """One look at every number that the loss is made of."""
    numbers = {name: values for name, values in tokens._asdict().items() if values.is_floating_point()}
    bad = torch.stack([(~torch.isfinite(values.detach())).sum() for values in numbers.values()]).tolist()
    for name, count in zip(numbers, bad, strict=True):
        if count:
            what = name.replace("_", " ")
            raise NonFiniteLossError(
                f"{count} of {len(tokens.advantages)} policy tokens have {what} that are NaN or infinite; "
                "the step is refused. Save the batch and look at its samples."
            )


def _sum_by_stage(tokens: PolicyTokens, per_token: Tensor, *, divergence: Tensor, is_clipped: Tensor) -> StageSums:
    ones = torch.ones_like(per_token)
    columns = (ones, tokens.entropy.detach(), divergence, is_clipped.to(ones.dtype), per_token.abs())
    zeros = per_token.new_zeros(NUM_STAGES)
    return StageSums(*(zeros.index_add(0, tokens.stage_ids, column.to(zeros.dtype)) for column in columns))


class StageReport(NamedTuple):
    """Means over the policy tokens of one stage, and the stage's part in the whole loss."""

    tokens: int
    entropy: float
    kl: float
    clip_share: float
    """Tokens at which the clip stopped the gradient."""
    loss_share: float
    """Of the summed |loss_t|; Research tokens dominate under `token-mean` (choice D2)."""


def add_sums(parts: list[StageSums]) -> StageSums:
    """The sums of several micro-batches as one."""
    return StageSums(*(torch.stack(column).sum(0) for column in zip(*parts, strict=True)))


def report_by_stage(sums: StageSums) -> dict[Stage, StageReport]:
    """A report for each stage that has tokens."""
    rows = torch.stack(sums).T.tolist()
    whole = sum(row[-1] for row in rows)
    return {
        stage: StageReport(
            int(count), entropy / count, kl / count, clipped / count, magnitude / whole if whole > 0 else 0.0
        )
        for stage, (count, entropy, kl, clipped, magnitude) in zip(STAGES, rows, strict=True)
        if count
    }


class UpdateReport(NamedTuple):
    """What one optimiser step amounted to."""

    loss: float
    grad_norm: float
    tokens: int
    sampling_gap: float
    """Mean |log-probability here - as sampled|: the two engines' disagreement plus the weights' age."""
    stages: dict[Stage, StageReport]


class Accumulated(NamedTuple):
    """Sums over the micro-batches of a batch."""

    loss: float
    sampling_gap: float
    sums: StageSums


class Learner:
    """Policy, reference and optimiser. The policy may be sampled from between updates, not within one."""

    def __init__(
        self,
        policy: Qwen3ForCausalLM,
        reference: Qwen3ForCausalLM,
        optimizer: torch.optim.Optimizer,
        *,
        loss: LossSettings,
        max_grad_norm: float,
        micro_batch_tokens: int,
    ) -> None:
        self.policy = policy
        self.optimizer = optimizer
        self.updates = 0
        self._reference = reference
        self._loss = loss
        self._max_grad_norm = max_grad_norm
        self._micro_batch_tokens = micro_batch_tokens

    @classmethod
    def over(
        cls,
        policy: Qwen3ForCausalLM,
        *,
        learning_rate: float,
        loss: LossSettings,
        max_grad_norm: float,
        micro_batch_tokens: int,
    ) -> "Learner":
        """A learner whose reference is the policy as it is now.

        Raises:
            ConfigError: the policy has attention that the trainer lacks.
        """
        refuse_sliding_window(policy)
        reference = copy.deepcopy(policy).requires_grad_(False)
        optimizer = torch.optim.AdamW(policy.parameters(), lr=learning_rate, weight_decay=0.0)
        return cls(
            policy, reference, optimizer, loss=loss, max_grad_norm=max_grad_norm, micro_batch_tokens=micro_batch_tokens
        )

    def update(self, batch: Batch) -> UpdateReport:
        """One step. The batch is passed over once, so the ratio is exactly 1 and the clip never binds.

        Raises:
            NonFiniteLossError: the weights are untouched; the caller saves the batch.
        """
        total, gap, sums = self.accumulate_gradient(batch)
        norm = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self._max_grad_norm)
        if not bool(torch.isfinite(norm)):
            raise NonFiniteLossError(f"the gradient's norm is {float(norm)}; the step is refused.")
        self.optimizer.step()
        self.updates += 1
        count = batch.num_policy_tokens
        return UpdateReport(total, float(norm), count, gap / max(1, count), report_by_stage(sums))

    def accumulate_gradient(self, batch: Batch) -> Accumulated:
        """Leave the batch's gradient, before clipping, on the policy's parameters in place of what was there."""
        denominator = self._loss.denominator(batch.num_policy_tokens, batch.num_samples)
        self.optimizer.zero_grad(set_to_none=True)
        total, gap, sums = 0.0, 0.0, []
        for pack in pack_samples(batch, max_tokens=self._micro_batch_tokens):
            flat = pack.part.policy_tokens()
            new = _read(self.policy, pack, flat)
            with torch.no_grad():
                known = _read(self._reference, pack, flat)
            tokens = _policy_tokens(flat, new, known)
            found = policy_loss(tokens, settings=self._loss, denominator=denominator)
            found.loss.backward()  # type: ignore[no-untyped-call]
            total += float(found.loss.detach())
            gap += float((tokens.old_logprobs - tokens.rollout_logprobs).abs().sum())
            sums.append(found.sums)
        return Accumulated(total, gap, add_sums(sums))


def _read(model: Qwen3ForCausalLM, pack: Pack, flat: FlatTokens) -> TokenLogprobs:
    """Log-probabilities of the policy's tokens."""
    device = model.device
    places = torch.as_tensor(pack.places(flat.rows, flat.columns), device=device)
    return token_logprobs(
        packed_hidden(model, pack)[places],
        model.lm_head.weight,
        targets=torch.as_tensor(flat.targets, dtype=torch.long, device=device),
        temperature=torch.as_tensor(flat.temperature, device=device),
    )


def _policy_tokens(flat: FlatTokens, new: TokenLogprobs, reference: TokenLogprobs) -> PolicyTokens:
    def like(values: object) -> Tensor:
        return torch.as_tensor(values, dtype=new.logprobs.dtype, device=new.logprobs.device)

    return PolicyTokens(
        new_logprobs=new.logprobs,
        old_logprobs=new.logprobs.detach(),
        reference_logprobs=reference.logprobs,
        rollout_logprobs=like(flat.rollout_logprobs),
        advantages=like(flat.advantages),
        stage_ids=torch.as_tensor(flat.stage_ids, dtype=torch.long, device=new.logprobs.device),
        entropy=new.entropy,
    )


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
