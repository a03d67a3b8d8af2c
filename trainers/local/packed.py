"""Dense models over packed samples: hidden states with a gradient, and log-probabilities without holding all logits.

Samples lie end to end without padding. A beginning that samples share is stored once: rollouts of one prompt, above
all the candidates of a reflection, repeat a beginning many times as long as their own text. A causal model reads it to
the same hidden states each time, so it is read once; gradients add up. Attention sees each sample alone, and the
beginning that it shares.

At 26,624 tokens and 151,936 words the logits alone are 16 GB in float32. Here the forward pass walks over the tokens
and keeps three numbers for each; the backward pass walks over the vocabulary and computes each tile of logits again,
so that every row of the head's gradient is summed and rounded once. The price is one more product of hidden states and
head: 8 instead of 6 operations for each pair.
"""

import platform
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from rubricem_agent.learn.samples import Batch
from rubricem_agent.policy.dense_decoder import DenseModel, rms_norm, run_layer

Index = npt.NDArray[np.intp]


class SampleTokens(NamedTuple):
    """Where the tokens of one sample lie: its own, and before them a beginning shared with an earlier sample."""

    head: int
    """Start of the shared beginning."""
    shared: int
    """Length of the shared beginning; 0 for a sample without one."""
    start: int
    """Start of its own tokens."""
    stop: int

    @property
    def length(self) -> int:
        return self.shared + self.stop - self.start


class Pack(NamedTuple):
    """Some samples of a batch in one row of tokens."""

    part: Batch
    token_ids: npt.NDArray[np.int32]
    """(tokens,)"""
    positions: Index
    """(tokens,): the position of each in its own sample."""
    runs: tuple[SampleTokens, ...]
    """One for each sample of `part`, in its order."""

    def indices(self, rows: Index, columns: Index) -> Index:
        """The indices in the pack of the tokens of samples `rows` at `columns`."""
        head, shared, start = (np.array([run[field] for run in self.runs], dtype=np.intp)[rows] for field in range(3))
        return np.where(columns < shared, head + columns, start + columns - shared)


def pack_samples(batch: Batch, *, max_tokens: int) -> list[Pack]:
    """The batch, in its order, in packs of at most `max_tokens` tokens; a longer sample is a pack of its own.

    A sample shares with the last one before it that shares nothing, so rollouts of one group must be adjacent.
    """
    packs: list[Pack] = []
    runs: list[SampleTokens] = []
    first = head = 0
    for row, length in enumerate(batch.lengths.tolist()):
        shared = _worth_sharing(batch, head, row) if runs else 0
        if runs and runs[-1].stop + length - shared > max_tokens:
            packs.append(_pack(batch, first, runs))
            runs, first, shared = [], row, 0
        if not shared:
            head = row
        start = runs[-1].stop if runs else 0
        runs.append(SampleTokens(runs[head - first].start if shared else start, shared, start, start + length - shared))
    return [*packs, _pack(batch, first, runs)] if runs else packs


def _worth_sharing(batch: Batch, head: int, row: int) -> int:
    """The length of the beginning that two samples share, where it is at least half of the later one; else 0.

    Attention to a beginning elsewhere costs more than the causal kind, so a short one is read again. The last token is
    never shared: no run is empty.
    """
    length = int(min(batch.lengths[head], batch.lengths[row] - 1))
    differs = np.flatnonzero(batch.token_ids[head, :length] != batch.token_ids[row, :length])
    shared = int(differs[0]) if len(differs) else length
    return shared if 2 * shared >= int(batch.lengths[row]) else 0


def _pack(batch: Batch, first: int, runs: list[SampleTokens]) -> Pack:
    part = batch.select(range(first, first + len(runs)))
    spans = [(row, run.shared, run.length) for row, run in enumerate(runs)]
    ids = np.concatenate([part.token_ids[row, shared:length] for row, shared, length in spans])
    positions = np.concatenate([np.arange(shared, length) for _, shared, length in spans])
    return Pack(part, ids, positions, tuple(runs))


TILE_ELEMENTS = 2**27
"""Logits in a tile: half a GiB in float32, and twice that while the passes work on it."""


def row_statistics(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The log-probability of each row's target, the row's log normaliser and its entropy. Overwrites `logits`.

    A tile is larger than any cache, so every pass over it that is saved counts.
    """
    largest = logits.amax(-1, keepdim=True)
    lowered = logits.sub_(largest)
    weights = lowered.exp()
    total = weights.sum(-1)
    log_total = total.log()
    logprobs = lowered.gather(1, targets[:, None])[:, 0] - log_total
    return logprobs, largest[:, 0] + log_total, log_total - weights.mul_(lowered).sum(-1) / total


def logit_gradient(logits: Tensor, targets: Tensor, log_normaliser: Tensor, upstream: Tensor) -> Tensor:
    """Gradient with respect to a tile of logits: upstream * (1[target] - probability).

    `targets` count from the tile's first column; those outside its columns are not in the tile. Overwrites `logits`.
    """
    gradient = logits.sub_(log_normaliser[:, None]).exp_().mul_(-upstream[:, None])
    width = logits.shape[1]
    chosen = torch.where((targets >= 0) & (targets < width), upstream, 0.0)
    columns = targets.clamp(0, width - 1)
    return gradient.scatter_add_(1, columns[:, None], chosen[:, None])


def token_logprobs(
    hidden: Tensor, head: Tensor, *, targets: Tensor, temperature: Tensor, tile_elements: int = TILE_ELEMENTS
) -> tuple[Tensor, Tensor]:
    """Log-probability of `targets` (tokens,) given `hidden` (tokens, width) and `head` (vocabulary, width).

    `temperature` (tokens,) divides the logits: that of the sample that the token belongs to, or the
    ratio is biased. Pass the rows of policy tokens only: the others cost as much and are not used.

    Returns with it the entropy of the whole distribution at each token, in nats: to report, not to train on, since it
    carries no gradient. Both are float32 (float64 where the hidden states are).
    """
    warmth = temperature.to(_wide(hidden.dtype))
    logprobs, entropy = _TiledHead.apply(hidden, head, targets, warmth, tile_elements)  # type: ignore[no-untyped-call]
    return logprobs, entropy


class _TiledHead(torch.autograd.Function):
    """Forward by tokens, backward by vocabulary."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, head: Tensor, targets: Tensor, temperature: Tensor, tile_elements: int
    ) -> tuple[Tensor, Tensor]:
        # Written in place: small results kept between tiles would fragment the heap, and no tile would fit again.
        logprobs, log_normaliser, entropy = hidden.new_empty(3, len(hidden), dtype=_wide(hidden.dtype))
        # The temperature divides the narrow side: a pass over each tile less. At 1 no bit changes.
        warmed = (hidden / temperature[:, None]).to(hidden.dtype)
        for rows in _slices(len(hidden), tile_elements // len(head)):
            statistics = row_statistics(_product(warmed[rows], head.T), targets[rows])
            logprobs[rows], log_normaliser[rows], entropy[rows] = statistics
        ctx.save_for_backward(warmed, head, targets, temperature, log_normaliser)
        ctx.tile_elements = tile_elements
        ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        warmed, head, targets, temperature, log_normaliser = ctx.saved_tensors
        grad_warmed = torch.zeros_like(warmed, dtype=_wide(warmed.dtype)) if ctx.needs_input_grad[0] else None
        grad_head = torch.empty_like(head) if ctx.needs_input_grad[1] else None
        for columns in _slices(len(head), ctx.tile_elements // max(1, len(warmed))):
            weights = head[columns]
            tile = logit_gradient(_product(warmed, weights.T), targets - columns.start, log_normaliser, upstream)
            tile = tile.to(warmed.dtype)
            if grad_warmed is not None:
                grad_warmed += _product(tile, weights)
            if grad_head is not None:
                torch.mm(tile.T, warmed, out=grad_head[columns])
        grad_hidden = None if grad_warmed is None else grad_warmed.div_(temperature[:, None]).to(warmed.dtype)
        return grad_hidden, grad_head, None, None, None


_ALIGNED = 128
"""A GPU multiplies several times faster where rows of a tile start at multiples of it."""


def _slices(length: int, step: int) -> list[slice]:
    """At most `step` at a time, aligned where it is large enough."""
    step = max(1, step - step % _ALIGNED if step > _ALIGNED else step)
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _product(left: Tensor, right: Tensor) -> Tensor:
    """The matrix product in the wide type; a GPU sums bf16 operands in float32 and need not round the result."""
    wide = _wide(left.dtype)
    if left.dtype != wide and left.is_cuda:
        return torch.mm(left, right, out_dtype=wide)
    return (left @ right).to(wide)


PRODUCT_ROWS = 128
"""Packs are padded to a multiple of it on a CPU: oneDNN prepares a product for some milliseconds for each new height.
"""


def _is_made_by_intel() -> bool:
    described = Path("/proc/cpuinfo")
    return "GenuineIntel" in (described.read_text("utf-8") if described.is_file() else platform.processor())


_BY_ONEDNN: bool = torch.backends.mkldnn.is_available() and not _is_made_by_intel()  # type: ignore[no-untyped-call]


class _Product(torch.autograd.Function):
    """States times a weight by oneDNN, in float32.

    MKL takes twice as long on processors of other makers; on Intel's, 0.5 to 1.0 of the time.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(states, weight)
        return _onednn(states, weight)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        states, weight = ctx.saved_tensors
        is_tall = weight.shape[0] > weight.shape[1]
        # oneDNN is faster with the wider one second.
        grad_weight = _onednn(states.T, upstream.T).T if is_tall else _onednn(upstream.T, states.T)
        return _onednn(upstream, weight.T), grad_weight


def _onednn(left: Tensor, right: Tensor) -> Tensor:
    """The product of `left` and the transposed `right`."""
    return cast(Tensor, torch.ops.mkldnn._linear_pointwise(left, right, None, "none", [], ""))


def _project(linear: nn.Module, states: Tensor) -> Tensor:
    """What a linear module gives; one that is wrapped, by LoRA, or of another type computes itself."""
    plain = type(linear) is nn.Linear and linear.bias is None and linear.weight.dtype == torch.float32
    if _BY_ONEDNN and plain and states.is_cpu and states.dtype == torch.float32:
        return cast(Tensor, _Product.apply(states, linear.weight))  # type: ignore[no-untyped-call]
    return cast(Tensor, linear(states))


def packed_hidden(model: DenseModel, pack: Pack) -> Tensor:
    """What the head reads, (tokens, width); on a CPU with some rows of padding."""
    device = model.device
    padding = -len(pack.token_ids) % PRODUCT_ROWS if device.type == "cpu" else 0
    ids, positions = (np.pad(row, (0, padding)) for row in (pack.token_ids, pack.positions))
    hidden: Tensor = model.model.embed_tokens(torch.as_tensor(ids, dtype=torch.long, device=device))
    cos, sin = model.model.rotary_emb(hidden[None, :1], torch.as_tensor(positions, device=device)[None])

    spans = packed_spans(pack.runs, device) if device.type == "cuda" else None

    def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        if spans:
            return attend_at_once(queries, keys, values=values, spans=spans)
        return _attend_by_sample(queries, keys, values=values, runs=pack.runs)

    for layer in model.model.layers:
        hidden = run_layer(layer, hidden, (cos[0, :, None], sin[0, :, None]), attend, _project)
    return rms_norm(model.model.norm, hidden)


def _attend_by_sample(queries: Tensor, keys: Tensor, *, values: Tensor, runs: Sequence[SampleTokens]) -> Tensor:
    """(tokens, heads x size): each sample's tokens see it alone; padding after the last one has zeros."""
    # The gradient of one split is written once, that of a slice for each sample with zeros around it.
    sizes = [run.stop - run.start for run in runs]
    padding = len(queries) - runs[-1].stop
    own, own_keys, own_values = (torch.split(states, [*sizes, padding]) for states in (queries, keys, values))
    places = {run.start: place for place, run in enumerate(runs)}
    mixed = []
    for place, run in enumerate(runs):
        seen = [
            torch.cat([states[places[run.head]][: run.shared], states[place]]) if run.shared else states[place]
            for states in (own_keys, own_values)
        ]
        mixed.append(_attend(own[place], *seen))
    return torch.cat([*mixed, mixed[0].new_zeros(padding, mixed[0].shape[1])])


def _attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """(own tokens, heads x size): one sample's tokens attend to themselves and to the beginning that it shares."""
    own, length = len(queries), len(keys)
    grouped = queries.shape[1] != keys.shape[1]
    # The causal kind skips half of the work, and fits only where there are as many queries as keys.
    positions = torch.arange(length, device=queries.device)
    visible = positions[None] <= positions[length - own :, None] if own < length else None
    queries, keys, values = (states.transpose(0, 1)[None] for states in (queries, keys, values))
    mixed = functional.scaled_dot_product_attention(
        queries, keys, values, attn_mask=visible, is_causal=visible is None, enable_gqa=grouped
    )
    return mixed[0].transpose(0, 1).flatten(1)


class PackedSpans(NamedTuple):
    """Where the samples of a pack lie, as a GPU's kernels read it."""

    seen: Tensor | None
    """Indices of the keys that each sample sees, one after the other; None where that is their order already."""
    own_starts: Tensor
    """(samples + 1,): where the queries of each sample start, and the end of the last."""
    seen_starts: Tensor
    """The same of the keys."""
    longest_own: int
    longest_seen: int


def packed_spans(runs: Sequence[SampleTokens], device: torch.device) -> PackedSpans:
    """The spans of a pack, on the device."""
    own, seen = [run.stop - run.start for run in runs], [run.length for run in runs]
    indices = None
    if any(run.shared for run in runs):
        parts = [np.r_[run.head : run.head + run.shared, run.start : run.stop] for run in runs]
        indices = torch.as_tensor(np.concatenate(parts), device=device)
    own_starts, seen_starts = (
        torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device) for lengths in (own, seen)
    )
    return PackedSpans(indices, own_starts, seen_starts, max(own), max(seen))


_LAST_SEES_LAST = 2
"""torch's name for the causal mask that is aligned at the end, where there are fewer queries than keys."""


def attend_at_once(queries: Tensor, keys: Tensor, *, values: Tensor, spans: PackedSpans) -> Tensor:
    """(tokens, heads x size): what `_attend` computes sample by sample, in one kernel of a GPU.

    Sample by sample, a pack of many short ones takes as long as its kernels take to be launched.
    """
    if spans.seen is not None:
        keys, values = keys[spans.seen], values[spans.seen]
    where = (spans.own_starts, spans.seen_starts, spans.longest_own, spans.longest_seen)
    if queries.dtype in (torch.bfloat16, torch.float16):
        mixed: Tensor = torch.ops.aten._flash_attention_forward(queries, keys, values, *where, 0.0, True, False)[0]
        return mixed.flatten(1)
    # The kernel for float32 knows no groups of heads.
    repeats = queries.shape[1] // keys.shape[1]
    keys, values = (states.repeat_interleave(repeats, 1) for states in (keys, values))
    mixed = torch.ops.aten._efficient_attention_forward(
        queries[None], keys[None], values[None], None, *where, 0.0, _LAST_SEES_LAST, True
    )[0]
    return mixed[0].flatten(1)
