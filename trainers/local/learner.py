"""The weights and what changes them: one optimiser step on a batch, against a frozen reference."""

import copy
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import Qwen3ForCausalLM

from rubricem_agent.learn.batch import Batch, FlatTokens
from rubricem_agent.learn.errors import NonFiniteLossError
from rubricem_env.domain.stage import Stage
from trainers.local.logprobs import TokenLogprobs, token_logprobs
from trainers.local.loss import (
    LossSettings,
    PolicyTokens,
    StageReport,
    StageSums,
    add_sums,
    policy_loss,
    report_by_stage,
)
from trainers.local.packing import Pack, pack_samples
from trainers.local.trunk import packed_hidden, refuse_sliding_window


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
