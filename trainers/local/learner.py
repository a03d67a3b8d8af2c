"""The local trainer's learner: the SS-GRPO loss and one optimiser step on a batch, against a frozen reference.

The loss is a clipped surrogate on stage advantages, with KL to the reference (paper, eq. 3). For policy token t of
rollout i in stage k, with A the stage's advantage, eta the clip range and beta the KL coefficient:

    rho_t  = exp(new_t - old_t)
    loss_t = -min(rho_t A_{i,k}, clip(rho_t, 1 - eta, 1 + eta) A_{i,k}) + beta KL3_t
    KL3_t  = exp(ref_t - new_t) - (ref_t - new_t) - 1

The sum over tokens is divided by a denominator of the GLOBAL batch, passed in, so that micro-batches add up to the
whole exactly. A sequence is a whole rollout, whose windows may stand in several micro-batches. No value function, no
entropy bonus, no length penalty.

`compare_gradients` measures whether the two phases agree: the cosine between the task's gradient and the reflections',
at the same weights. The paper shares one policy between both and assumes that each helps the other.
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from transformers import PreTrainedModel

from rubricem_agent.learn.credit import NonFiniteLossError
from rubricem_agent.learn.divergence import KL_LIMIT, LOG_RATIO_LIMIT
from rubricem_agent.learn.samples import Batch
from rubricem_agent.learn.stage_metrics import report_by_stage
from rubricem_agent.policy.dense_decoder import is_dense
from rubricem_env.domain.base import NUM_STAGES, STAGES
from rubricem_env.domain.settings import Settings
from rubricem_records.runs.log_lines import GradientMetrics, UpdateMetrics

from ..lora import lora_layers, without_lora
from .packed import Pack, pack_samples, packed_hidden, token_logprobs

Aggregation = Literal["token-mean", "seq-mean-token-sum"]
ImportanceLevel = Literal["token", "sequence"]
_Result = TypeVar("_Result")


class LossSettings(Settings):
    """The constants of the loss; the paper's, or DR Tulu's where it names none."""

    clip_low: Annotated[float, Field(gt=0, lt=1)] = 0.2
    clip_high: Annotated[float, Field(gt=0)] = 0.2
    kl_coefficient: Annotated[float, Field(ge=0)] = 0.001
    aggregation: Aggregation = "token-mean"
    """`token-mean`: all policy tokens of the batch weigh the same. `seq-mean-token-sum`: the equation's 1/n sum, with n
    rollouts, each of however many windows.
    """
    importance_cap: Annotated[float, Field(gt=0)] | None = None
    """Truncated importance sampling: weigh a token by min(exp(old - rollout), cap). None: no correction."""
    importance_level: ImportanceLevel = "token"
    """`sequence`: the weight of a token is its whole rollout's, min(exp(sum of old - rollout), cap)."""
    rejection: Annotated[float, Field(gt=0)] | None = None
    """Leave out rollouts whose mean of exp(r) - r - 1, r = old - rollout, exceeds it. None: none."""

    @property
    def reads_sequences(self) -> bool:
        """Whether a token's loss depends on the other tokens of its sequence."""
        return self.rejection is not None or (self.importance_cap is not None and self.importance_level == "sequence")

    def denominator(self, num_tokens: int, num_sequences: int) -> int:
        """The divisor of the token sum, from the counts of the global batch; at least 1."""
        return max(1, num_tokens if self.aggregation == "token-mean" else num_sequences)


class SequenceDrift(NamedTuple):
    """How far the policy is from what sampled each sequence, with r = old - rollout; (sequences,) each."""

    gap: Tensor
    """Sum of r."""
    divergence: Tensor
    """Sum of exp(r) - r - 1."""
    tokens: Tensor


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
    sequences: Tensor | None = None
    """The sequence of each token, int64 from 0; None is one sequence."""
    drift: SequenceDrift | None = None
    """That of whole sequences; None where no sequence has tokens elsewhere."""


def policy_loss(
    tokens: PolicyTokens, *, settings: LossSettings, denominator: int, num_stages: int = NUM_STAGES
) -> tuple[Tensor, Tensor]:
    """The micro-batch's share of the loss. Zero, and differentiable, without tokens.

    Returns with it (5, stages): tokens, entropy, KL, clipped tokens and |loss_t|, summed by stage; micro-batches add
    up.

    Raises:
        NonFiniteLossError: something in it is NaN or infinite; apply no gradient and save the batch.
    """
    refuse_non_finite(tokens)
    surrogate, is_clipped = clipped_surrogate(tokens, settings)
    divergence = kl3(tokens.new_logprobs, tokens.reference_logprobs)
    per_token = settings.kl_coefficient * divergence - surrogate
    if settings.rejection is not None:
        per_token = per_token * kept_tokens(tokens, settings.rejection)
    loss = per_token.sum() / denominator
    if not bool(torch.isfinite(loss.detach())):
        raise NonFiniteLossError(f"the loss of {len(per_token)} policy tokens is {loss.item()}; the step is refused.")
    return loss, _sum_by_stage(
        tokens, per_token.detach(), divergence=divergence.detach(), is_clipped=is_clipped, num_stages=num_stages
    )


def clipped_surrogate(tokens: PolicyTokens, settings: LossSettings) -> tuple[Tensor, Tensor]:
    """min(rho A, clip(rho) A) for each token, and whether the clip is what it returned (so: no gradient)."""
    log_ratio = (tokens.new_logprobs - tokens.old_logprobs).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    ratio = log_ratio.exp()
    free = ratio * tokens.advantages
    held = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high) * tokens.advantages
    surrogate = torch.minimum(free, held)
    if settings.importance_cap is not None:
        surrogate = surrogate * importance_weights(tokens, settings.importance_cap, settings.importance_level)
    return surrogate, held.detach() < free.detach()


def importance_weights(tokens: PolicyTokens, cap: float, level: ImportanceLevel = "token") -> Tensor:
    """min(exp(old - rollout), cap): how far the sampled distribution is from the policy's, as veRL weighs it."""
    return importance_ratios(tokens, level).clamp(max=cap)


def importance_ratios(tokens: PolicyTokens, level: ImportanceLevel) -> Tensor:
    """The weights without a cap; those of a sequence are the product of its tokens'."""
    gap = (tokens.old_logprobs - tokens.rollout_logprobs).detach()
    if level == "sequence":
        gap = _drift(tokens).gap[_sequences(tokens)]
    return gap.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def kept_tokens(tokens: PolicyTokens, limit: float) -> Tensor:
    """1 for the tokens of sequences whose mean divergence from sampling is at most `limit`, else 0."""
    drift = _drift(tokens)
    is_kept = drift.divergence / drift.tokens <= limit
    return is_kept[_sequences(tokens)].to(tokens.old_logprobs.dtype)


def _drift(tokens: PolicyTokens) -> SequenceDrift:
    if tokens.drift is not None:
        return tokens.drift
    gap = (tokens.old_logprobs - tokens.rollout_logprobs).detach()
    rows = _sequences(tokens)
    return sum_by_sequence(gap, rows, int(rows.max()) + 1 if len(rows) else 1)


def sum_by_sequence(gap: Tensor, sequences: Tensor, count: int) -> SequenceDrift:
    """The drift of `count` sequences over tokens with these gaps, old - rollout."""
    held = gap.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    columns = (gap, held.exp() - held - 1, torch.ones_like(gap))
    return SequenceDrift(*(gap.new_zeros(count).index_add(0, sequences, column) for column in columns))


def _sequences(tokens: PolicyTokens) -> Tensor:
    return torch.zeros_like(tokens.stage_ids) if tokens.sequences is None else tokens.sequences


def kl3(new_logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """Schulman's third estimator of KL(new || reference): never negative, unbiased for samples of the new policy."""
    gap = (reference_logprobs - new_logprobs).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    return (gap.exp() - gap - 1).clamp(max=KL_LIMIT)


def refuse_non_finite(tokens: PolicyTokens) -> None:
    """Refuse NaN and infinity in every input of the loss."""
    numbers = {
        name: values
        for name, values in tokens._asdict().items()
        if isinstance(values, Tensor) and values.is_floating_point()
    }
    bad = torch.stack([(~torch.isfinite(values.detach())).sum() for values in numbers.values()]).tolist()
    for name, count in zip(numbers, bad, strict=True):
        if count:
            what = name.replace("_", " ")
            raise NonFiniteLossError(
                f"{count} of {len(tokens.advantages)} policy tokens have {what} that are NaN or infinite; "
                "the step is refused. Save the batch and look at its samples."
            )


def _sum_by_stage(
    tokens: PolicyTokens, per_token: Tensor, *, divergence: Tensor, is_clipped: Tensor, num_stages: int
) -> Tensor:
    ones = torch.ones_like(per_token)
    # |loss_t|: signed losses of good and bad rollouts would cancel.
    columns = (ones, tokens.entropy.detach(), divergence, is_clipped.to(ones.dtype), per_token.abs())
    zeros = per_token.new_zeros(num_stages)
    return torch.stack([zeros.index_add(0, tokens.stage_ids, column.to(zeros.dtype)) for column in columns])


class Learner:
    """Policy, reference, optimiser and sampler.

    The sampler is the policy itself, or with `ahead` a copy that an update leaves alone.
    """

    def __init__(
        self,
        policy: PreTrainedModel,
        *,
        learning_rate: float,
        loss: LossSettings,
        max_grad_norm: float,
        micro_batch_tokens: int,
        ahead: bool = False,
        threads: int = 1,
        stages: Sequence[str] = STAGES,
    ) -> None:
        """The reference is the policy as it is now: a copy, or itself where LoRA leaves its weights as they were.

        On a CPU, `threads` above 1 pass that many packs of samples at once, each on one core; not with LoRA.
        """
        self.policy = policy
        self.stages = tuple(stages)
        self.trained = [parameter for parameter in policy.parameters() if parameter.requires_grad]
        self.reference = policy if lora_layers(policy) else copy.deepcopy(policy).requires_grad_(False)
        self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(self.trained, lr=learning_rate, weight_decay=0.0)
        self.loss = loss
        self.max_grad_norm = max_grad_norm
        self.micro_batch_tokens = micro_batch_tokens
        self.sampler = copy.deepcopy(policy).requires_grad_(False) if ahead else policy
        self.updates = self.synced = 0
        can_share = threads > 1 and policy.device.type == "cpu" and self.reference is not policy
        self._pool = ThreadPoolExecutor(threads, "update", torch.set_num_threads, (1,)) if can_share else None

    def sync_sampler(self) -> None:
        """Give the sampler the weights as they are now."""
        self.synced = self.updates
        if self.sampler is not self.policy:
            self.sampler.load_state_dict(self.policy.state_dict())

    def update(self, batch: Batch, *, kl_coefficient: float | None = None) -> UpdateMetrics:
        """One optimiser step; `kl_coefficient` replaces the loss's.

        The batch is passed over once, so the ratio is exactly 1 and the clip never binds.

        Raises:
            NonFiniteLossError: the weights are untouched; the caller saves the batch.
        """
        own = {} if kl_coefficient is None else {"kl_coefficient": kl_coefficient}
        total, off_policy, sums = self.accumulate_gradient(batch, self.loss.model_copy(update=own))
        norm = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
        if not bool(torch.isfinite(norm)):
            raise NonFiniteLossError(f"the gradient's norm is {float(norm)}; the step is refused.")
        self.optimizer.step()
        self.updates += 1
        count = batch.num_policy_tokens
        gap, divergence, capped = (off_policy / max(1, count)).tolist()
        return UpdateMetrics(
            loss=total,
            grad_norm=float(norm),
            tokens=count,
            sampling_gap=gap,
            rollout_kl=divergence,
            capped=None if self.loss.importance_cap is None else capped,
            stages=report_by_stage(sums.tolist(), self.stages),
        )

    def accumulate_gradient(self, batch: Batch, settings: LossSettings | None = None) -> tuple[float, Tensor, Tensor]:
        """Replace the gradient on the policy's parameters by the batch's, before clipping.

        `settings` replaces the loss's.

        Returns sums over the batch: the loss, what `_sum_off_policy` and what `policy_loss` sums by stage. Everything
        is summed in the order of the packs, so no number depends on the threads.
        """
        settings = settings or self.loss
        denominator = settings.denominator(batch.num_policy_tokens, batch.num_rollouts)
        self.optimizer.zero_grad(set_to_none=True)
        total, off_policy = 0.0, torch.zeros(3, device=self.policy.device)
        sums = torch.zeros(5, len(self.stages), device=self.policy.device)
        # Other models read one sample at a time.
        most = self.micro_batch_tokens if is_dense(self.policy) else 0
        packs = pack_samples(batch, max_tokens=most)
        drift = None
        if settings.reads_sequences and batch.num_rollouts < batch.num_samples:
            drift = self._measure_drift(packs, batch.num_rollouts)
        work = partial(self._pass, settings=settings, denominator=denominator, drift=drift)
        for loss, of_sampling, by_stage, gradient in self._map(work, packs):
            total += loss
            off_policy = off_policy + of_sampling
            sums = sums + by_stage
            for parameter, share in zip(self.trained, gradient, strict=True):
                if share is not None:
                    parameter.grad = share.clone() if parameter.grad is None else parameter.grad.add_(share)
        return total, off_policy, sums

    def _measure_drift(self, packs: Sequence[Pack], num_rollouts: int) -> SequenceDrift:
        """The drift of whole rollouts, by one more forward pass: a rollout's windows may stand in several packs."""
        gaps = list(self._map(self._sampling_gaps, packs))
        rollouts = np.concatenate([pack.part.rollouts[pack.part.policy_positions()[0]] for pack in packs])
        sequences = torch.as_tensor(rollouts, dtype=torch.long, device=self.policy.device)
        return sum_by_sequence(torch.cat(gaps), sequences, num_rollouts)

    @torch.no_grad()
    def _sampling_gaps(self, pack: Pack) -> Tensor:
        """Old - rollout of each policy token of a pack."""
        new, _ = policy_logprobs(self.policy, pack)
        sampled = pack.part.rollout_logprobs[pack.part.policy_positions()]
        return new - torch.as_tensor(sampled, dtype=new.dtype, device=new.device)

    def _map(self, work: Callable[[Pack], _Result], packs: Sequence[Pack]) -> Iterator[_Result]:
        """The results in the order of the packs; with threads, several packs at once."""
        return self._pool.map(work, packs) if self._pool else map(work, packs)

    def _pass(
        self, pack: Pack, *, settings: LossSettings, denominator: int, drift: SequenceDrift | None
    ) -> tuple[float, Tensor, Tensor, Sequence[Tensor | None]]:
        """One pack's share of each sum and, with threads, of each gradient; without, it is added and None returned."""
        new, entropy = policy_logprobs(self.policy, pack)
        with torch.no_grad(), without_lora(self.reference):
            reference, _ = policy_logprobs(self.reference, pack)
        tokens = _policy_tokens(pack.part, new, reference, entropy=entropy)._replace(drift=drift)
        loss, by_stage = policy_loss(tokens, settings=settings, denominator=denominator, num_stages=len(self.stages))
        gradient: Sequence[Tensor | None] = [None] * len(self.trained)
        if self._pool:
            gradient = torch.autograd.grad(loss, self.trained, allow_unused=True)
        else:
            loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach()), _sum_off_policy(tokens, settings), by_stage, gradient


def policy_logprobs(model: PreTrainedModel, pack: Pack) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the policy's tokens, and the entropy at each; the entropy carries no gradient."""
    device = model.device
    rows, columns = pack.part.policy_positions()
    targets = torch.as_tensor(pack.part.token_ids[rows, columns], dtype=torch.long, device=device)
    temperature = torch.as_tensor(pack.part.temperature[rows], device=device)
    # Each token is predicted one position before it.
    indices = torch.as_tensor(pack.indices(rows, columns - 1), device=device)
    if is_dense(model):
        hidden = packed_hidden(model, pack)[indices]
        return token_logprobs(hidden, model.lm_head.weight, targets=targets, temperature=temperature)
    ids = torch.as_tensor(pack.token_ids, dtype=torch.long, device=device)[None]
    logits = model(input_ids=ids, use_cache=False, logits_to_keep=indices).logits[0].float()
    logprobs = (logits / temperature[:, None]).log_softmax(1)
    entropy = -(logprobs.detach().exp() * logprobs.detach()).sum(1)
    return logprobs.gather(1, targets[:, None])[:, 0], entropy


def _policy_tokens(batch: Batch, new: Tensor, reference: Tensor, *, entropy: Tensor) -> PolicyTokens:
    """The inputs of the loss, from a batch and the log-probabilities of its policy tokens."""
    positions = batch.policy_positions()

    def like(values: object) -> Tensor:
        return torch.as_tensor(values, dtype=new.dtype, device=new.device)

    return PolicyTokens(
        new_logprobs=new,
        old_logprobs=new.detach(),
        reference_logprobs=reference,
        rollout_logprobs=like(batch.rollout_logprobs[positions]),
        advantages=like(batch.advantages[positions]),
        stage_ids=torch.as_tensor(batch.stage_ids[positions], dtype=torch.long, device=new.device),
        entropy=entropy,
        sequences=torch.as_tensor(batch.rollouts[positions[0]], dtype=torch.long, device=new.device),
    )


def _sum_off_policy(tokens: PolicyTokens, settings: LossSettings) -> Tensor:
    """|old - rollout| and rollout - old, and the tokens whose weight is capped."""
    gap = tokens.old_logprobs - tokens.rollout_logprobs
    is_capped = torch.zeros_like(gap)
    if settings.importance_cap is not None:
        is_capped = (importance_ratios(tokens, settings.importance_level) > settings.importance_cap).to(gap.dtype)
    return torch.stack([gap.abs().sum(), -gap.sum(), is_capped.sum()])


def compare_gradients(learner: Learner, *, task: Batch, reflection: Batch) -> GradientMetrics | None:
    """The cosine of the two gradients. Weights, optimiser and later updates are unaffected.

    None where a gradient is not finite: the update that follows refuses its batch.
    """
    try:
        of_task, of_reflection = _gradient(learner, task), _gradient(learner, reflection)
    except NonFiniteLossError:
        return None
    task_norm, reflection_norm, dot = _norm(of_task), _norm(of_reflection), _dot(of_task, of_reflection)
    if not math.isfinite(task_norm + reflection_norm + dot):
        return None
    product = task_norm * reflection_norm
    cosine = dot / product if product > 0 else 0.0
    return GradientMetrics(cosine=cosine, task_norm=task_norm, reflection_norm=reflection_norm)


def _gradient(learner: Learner, batch: Batch) -> list[Tensor]:
    """The gradient of each parameter; 0 for one that the loss does not reach."""
    learner.accumulate_gradient(batch)
    gradient = [torch.zeros_like(weights) if weights.grad is None else weights.grad for weights in learner.trained]
    learner.optimizer.zero_grad(set_to_none=True)
    return gradient


def _dot(one: list[Tensor], other: list[Tensor]) -> float:
    return sum(float((a.double() * b.double()).sum()) for a, b in zip(one, other, strict=True))


def _norm(gradient: list[Tensor]) -> float:
    return math.sqrt(_dot(gradient, gradient))
