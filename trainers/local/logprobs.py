"""Log-probabilities of chosen tokens under a large vocabulary, without ever holding all the logits.

At 26,624 tokens and 151,936 words the logits alone are 16 GB in float32, and the plain way keeps several such
arrays. Here the forward pass walks over the tokens and keeps three numbers for each; the backward pass walks
over the vocabulary and makes each tile of logits again, so that every row of the head's gradient is summed and
rounded once. Price: one more product of hidden states and head, 8 instead of 6 operations for each pair.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

TILE_ELEMENTS = 2**27
"""Logits in a tile: half a GiB in float32, and three or four times that while the eager passes work on it."""


class TokenLogprobs(NamedTuple):
    """One number for each token, in float32 (float64 where the hidden states are)."""

    logprobs: Tensor
    """Differentiable."""
    entropy: Tensor
    """Of the whole distribution at this token, in nats. To report, not to train on: it carries no gradient."""


class Rows(NamedTuple):
    """What the passes know of each token; (tokens,) each."""

    targets: Tensor
    temperature: Tensor


class BackwardRows(NamedTuple):
    """What they know on the way back."""

    targets: Tensor
    """Counted from the tile's first column; those outside it are not in the tile."""
    temperature: Tensor
    log_normaliser: Tensor
    upstream: Tensor


class HeadKernels(NamedTuple):
    """The two passes over a tile of logits; compiled on a GPU, where each pass costs a trip through its memory."""

    statistics: Callable[[Tensor, Rows], tuple[Tensor, Tensor, Tensor]]
    gradient: Callable[[Tensor, BackwardRows], Tensor]


def row_statistics(logits: Tensor, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
    """The log-probability of each row's target, the row's log normaliser and its entropy."""
    scaled = logits / rows.temperature[:, None]
    log_normaliser = scaled.logsumexp(-1)
    logprobs = scaled.gather(1, rows.targets[:, None])[:, 0] - log_normaliser
    expected_logit = ((scaled - log_normaliser[:, None]).exp() * scaled).sum(-1)
    return logprobs, log_normaliser, log_normaliser - expected_logit


def logit_gradient(logits: Tensor, rows: BackwardRows) -> Tensor:
    """Gradient with respect to a tile of logits: upstream / temperature * (1[target] - probability)."""
    scale = rows.upstream / rows.temperature
    probabilities = (logits / rows.temperature[:, None] - rows.log_normaliser[:, None]).exp()
    width = logits.shape[1]
    chosen = torch.where((rows.targets >= 0) & (rows.targets < width), scale, 0.0)
    columns = rows.targets.clamp(0, width - 1)
    return (probabilities * -scale[:, None]).scatter_add(1, columns[:, None], chosen[:, None])


EAGER = HeadKernels(row_statistics, logit_gradient)


def compiled_kernels() -> HeadKernels:
    """The same passes fused by `torch.compile`; the first use of each shape compiles."""
    return HeadKernels(torch.compile(row_statistics), torch.compile(logit_gradient))


def token_logprobs(
    hidden: Tensor,
    head: Tensor,
    *,
    targets: Tensor,
    temperature: Tensor,
    tile_elements: int = TILE_ELEMENTS,
    kernels: HeadKernels = EAGER,
) -> TokenLogprobs:
    """Log-probability of `targets` (tokens,) given `hidden` (tokens, width) and `head` (vocabulary, width).

    `temperature` (tokens,) divides the logits: that of the sample that the token belongs to (choice C9), or the
    ratio is biased. Pass the rows of policy tokens only: the others cost as much and count for nothing.
    """
    warmth = temperature.to(_wide(hidden.dtype))
    logprobs, entropy = _TiledHead.apply(hidden, head, targets, warmth, tile_elements, kernels)  # type: ignore[no-untyped-call]
    return TokenLogprobs(logprobs, entropy)


class _TiledHead(torch.autograd.Function):
    """Forward by tokens, backward by vocabulary."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        head: Tensor,
        targets: Tensor,
        temperature: Tensor,
        tile_elements: int,
        kernels: HeadKernels,
    ) -> tuple[Tensor, Tensor]:
        # Written into place: small results kept between tiles would split the heap, and no tile would fit again.
        logprobs, log_normaliser, entropy = hidden.new_empty(3, len(hidden), dtype=_wide(hidden.dtype))
        for rows in _slices(len(hidden), max(1, tile_elements // len(head))):
            logits = _product(hidden[rows], head.T)
            known = Rows(targets[rows], temperature[rows])
            logprobs[rows], log_normaliser[rows], entropy[rows] = kernels.statistics(logits, known)
        ctx.save_for_backward(hidden, head, targets, temperature, log_normaliser)
        ctx.tile_elements, ctx.kernels = tile_elements, kernels
        ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        hidden, head, targets, temperature, log_normaliser = ctx.saved_tensors
        grad_hidden = torch.zeros_like(hidden, dtype=_wide(hidden.dtype)) if ctx.needs_input_grad[0] else None
        grad_head = torch.empty_like(head) if ctx.needs_input_grad[1] else None
        for columns in _slices(len(head), max(1, ctx.tile_elements // max(1, len(hidden)))):
            weights = head[columns]
            logits = _product(hidden, weights.T)
            rows = BackwardRows(targets - columns.start, temperature, log_normaliser, upstream)
            tile = ctx.kernels.gradient(logits, rows).to(hidden.dtype)
            if grad_hidden is not None:
                grad_hidden += _product(tile, weights)
            if grad_head is not None:
                torch.mm(tile.T, hidden, out=grad_head[columns])
        return None if grad_hidden is None else grad_hidden.to(hidden.dtype), grad_head, None, None, None, None


def _slices(length: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _product(left: Tensor, right: Tensor) -> Tensor:
    """The matrix product in the wide type; a GPU sums bf16 operands in float32 and need not round the result."""
    wide = _wide(left.dtype)
    if left.dtype != wide and left.is_cuda:
        return torch.mm(left, right, out_dtype=wide)
    return (left @ right).to(wide)
