"""Qwen3's forward pass over a preallocated KV cache that is kept between turns.

Reads the model's own modules, so weights in training are used as they are. Unlike transformers' `generate`, it does not
copy the cache at every step and keeps it after a call.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from transformers import Qwen3ForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer, Qwen3RMSNorm

from rubricem_env.domain.errors import ConfigError

FIRST_CAPACITY = 1_024
BUSY_SHARE = 0.5
"""Idle rows between busy ones are computed too, to avoid copying the cache, if at least this share is busy."""


class Feed(NamedTuple):
    """New tokens of one row, at the positions of its cache from `start` on."""

    row: int
    start: int
    ids: Sequence[int]


class _Step(NamedTuple):
    """The new tokens of all rows, right-padded. B rows, T tokens, L cached positions."""

    first: int
    """The cache row of the step's first row."""
    busy: Tensor
    """The rows that have new tokens, counted from `first`."""
    positions: Tensor
    """(B, T): the position of each token in its row; the scratch position for padding."""
    mask: Tensor
    """(B, 1, T, L): which cached positions each token sees."""
    cos: Tensor
    """(B, 1, T, D)."""
    sin: Tensor

    @property
    def span(self) -> int:
        return len(self.positions)


class Qwen3Decoder:
    """A model with a cache of `rows` conversations of at most `max_length` tokens. Not safe to share among threads."""

    def __init__(self, model: Qwen3ForCausalLM, *, rows: int, max_length: int) -> None:
        if model.model.has_sliding_layers:
            raise ConfigError("this decoder has no sliding-window attention; serve the model and use openai:MODEL@URL.")
        self.max_length = max_length
        self.rows = rows
        self._model = model
        self._capacity = 0
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self._cos, self._sin = torch.empty(0), torch.empty(0)

    @torch.inference_mode()
    def logits(self, feeds: Sequence[Feed]) -> Tensor:
        """Append each row's new tokens to its cache; the logits after the last of them, (len(feeds), vocabulary), float32.

        Feeds are in the order of their rows, one for each row.
        """
        self._reserve(max(feed.start + len(feed.ids) for feed in feeds))
        return torch.cat([self._run(run) for run in _dense_runs(feeds)])

    def _run(self, feeds: Sequence[Feed]) -> Tensor:
        step = self._step(feeds)
        hidden = self._model.model.embed_tokens(self._padded(feeds, step))
        for index, layer in enumerate(self._model.model.layers):
            hidden = self._layer(layer, hidden, index=index, step=step)
        last = torch.tensor([len(feed.ids) - 1 for feed in feeds], device=hidden.device)
        final = _norm(self._model.model.norm, hidden[step.busy, last])
        logits: Tensor = self._model.lm_head(final)
        return logits.float()

    @torch.inference_mode()
    def copy_prefix(self, source: int, target: int, *, length: int) -> None:
        """Copy the first positions of another row's cache."""
        for cache in (*self._keys, *self._values):
            cache[target, :, :length] = cache[source, :, :length]

    def _reserve(self, length: int) -> None:
        """Make room by doubling, so that the cache is copied only a few times per conversation."""
        if length <= self._capacity:
            return
        capacity = min(self.max_length, max(FIRST_CAPACITY, 2 * self._capacity, length))
        config, embedding = self._model.config, self._model.model.embed_tokens.weight
        # One position more than can be used: padding is written there.
        shape = (self.rows, config.num_key_value_heads, capacity + 1, config.head_dim)
        for caches in (self._keys, self._values):
            grown = [embedding.new_zeros(shape) for _ in self._model.model.layers]
            for new, old in zip(grown, caches, strict=False):
                new[:, :, : self._capacity] = old[:, :, : self._capacity]
            caches[:] = grown
        self._capacity = capacity
        positions = torch.arange(capacity + 1, device=embedding.device)[None]
        cos, sin = self._model.model.rotary_emb(embedding[None, :1], positions)
        self._cos, self._sin = cos[0], sin[0]

    def _step(self, feeds: Sequence[Feed]) -> _Step:
        device = self._cos.device
        first, span = feeds[0].row, feeds[-1].row - feeds[0].row + 1
        width = max(len(feed.ids) for feed in feeds)
        length = max(feed.start + len(feed.ids) for feed in feeds)
        starts, sizes = torch.zeros(span, 1, dtype=torch.long), torch.zeros(span, 1, dtype=torch.long)
        busy = torch.tensor([feed.row - first for feed in feeds])
        starts[busy, 0] = torch.tensor([feed.start for feed in feeds])
        sizes[busy, 0] = torch.tensor([len(feed.ids) for feed in feeds])
        offsets = torch.arange(width)[None]
        reach = starts + offsets
        positions = torch.where(offsets < sizes, reach, self._capacity).to(device)
        # Padding and idle rows see position 0, so that no row of the softmax is empty.
        mask = (torch.arange(length)[None, None, None] <= reach[:, None, :, None]).to(device)
        return _Step(
            first, busy.to(device), positions, mask, self._cos[positions][:, None], self._sin[positions][:, None]
        )

    def _padded(self, feeds: Sequence[Feed], step: _Step) -> Tensor:
        ids = torch.zeros(step.positions.shape, dtype=torch.long)
        for feed in feeds:
            ids[feed.row - step.first, : len(feed.ids)] = torch.tensor(feed.ids)
        return ids.to(step.positions.device)

    def _layer(self, layer: Qwen3DecoderLayer, hidden: Tensor, *, index: int, step: _Step) -> Tensor:
        attention = layer.self_attn
        normed = _norm(layer.input_layernorm, hidden)
        shape = (*normed.shape[:2], -1, attention.head_dim)
        queries = _norm(attention.q_norm, attention.q_proj(normed).view(shape)).transpose(1, 2)
        keys = _norm(attention.k_norm, attention.k_proj(normed).view(shape)).transpose(1, 2)
        values = attention.v_proj(normed).view(shape).transpose(1, 2)
        queries, keys = _rotate(queries, step), _rotate(keys, step)
        keys, values = self._append(keys, values, index=index, step=step)
        mixed = _attend(queries, keys, values=values, mask=step.mask)
        hidden = hidden + attention.o_proj(mixed.transpose(1, 2).flatten(2))
        out: Tensor = layer.mlp(_norm(layer.post_attention_layernorm, hidden))
        return hidden + out

    def _append(self, keys: Tensor, values: Tensor, *, index: int, step: _Step) -> tuple[Tensor, Tensor]:
        """Write the new keys and values; return what the step's rows have cached so far."""
        length = step.mask.shape[-1]
        seen = []
        for cache, new in ((self._keys[index], keys), (self._values[index], values)):
            rows = cache[step.first : step.first + step.span]
            rows[torch.arange(step.span, device=new.device)[:, None], :, step.positions] = new.transpose(1, 2)
            seen.append(rows[:, :, :length])
        return seen[0], seen[1]


def _dense_runs(feeds: Sequence[Feed]) -> list[Sequence[Feed]]:
    """The feeds, split at their widest gaps until enough of the rows in between are busy."""
    span = feeds[-1].row - feeds[0].row + 1
    if len(feeds) >= BUSY_SHARE * span:
        return [feeds]
    gaps = [after.row - before.row for before, after in pairwise(feeds)]
    cut = gaps.index(max(gaps)) + 1
    return [*_dense_runs(feeds[:cut]), *_dense_runs(feeds[cut:])]


def _norm(norm: Qwen3RMSNorm, hidden: Tensor) -> Tensor:
    return functional.rms_norm(hidden, norm.weight.shape, norm.weight, norm.variance_epsilon)


def _rotate(states: Tensor, step: _Step) -> Tensor:
    half = states.shape[-1] // 2
    turned = torch.cat((-states[..., half:], states[..., :half]), dim=-1)
    return states * step.cos + turned * step.sin


def _attend(queries: Tensor, keys: Tensor, *, values: Tensor, mask: Tensor) -> Tensor:
    """Grouped-query attention without repeating keys: the queries of one group are laid out like tokens."""
    batch, heads, width, size = queries.shape
    groups = heads // keys.shape[1]
    grouped = queries.reshape(batch, keys.shape[1], groups * width, size)
    visible = mask.expand(-1, groups, -1, -1).reshape(batch, 1, groups * width, -1)
    mixed = functional.scaled_dot_product_attention(grouped, keys, values, attn_mask=visible)
    return mixed.reshape(batch, heads, width, size)
