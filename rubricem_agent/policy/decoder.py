"""A KV cache of many conversations, kept between turns, and the forward passes that sample over it.

`RowDecoder` has the cache, and a subclass runs the layers of its model over it. Unlike transformers' `generate`, it
does not copy the cache at every step.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

FIRST_CAPACITY = 1_024
BUSY_SHARE = 0.5
"""Idle rows between busy ones are computed too, to avoid copying the cache, if at least this share is busy."""


class Feed(NamedTuple):
    """New tokens of one row, at the positions of its cache from `start` on."""

    row: int
    start: int
    ids: Sequence[int]
    wanted: int = 1
    """The logits after that many of the last tokens are wanted."""


class RowStep(NamedTuple):
    """The new tokens of all rows, right-padded. B rows, T tokens, L cached positions."""

    first: int
    """The cache row of the step's first row."""
    length: int
    """L."""
    ids: Tensor
    """(B, T)."""
    positions: Tensor
    """(B, T): the position of each token in its row; the scratch position for padding."""
    mask: Tensor
    """(B, 1, T, L): which cached positions each token sees."""
    rows: Tensor
    """The row of each token whose logits are wanted, counted from `first`."""
    columns: Tensor
    """Its column."""

    @property
    def span(self) -> int:
        return len(self.positions)


class RowDecoder:
    """A model with a cache of `rows` conversations of at most `max_length` tokens. Not safe to share among threads."""

    can_rewind = True
    """Whether a row goes on before tokens that it has read, without reading it again."""

    def __init__(self, model: PreTrainedModel, *, rows: int, max_length: int) -> None:
        self.max_length = max_length
        self.rows = rows
        self._device = model.device
        self._capacity = 0
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    @torch.inference_mode()
    def logits(self, feeds: Sequence[Feed]) -> Tensor:
        """Append each row's new tokens to its cache; the logits that are wanted, (tokens, vocabulary), float32.

        Feeds are in the order of their rows, one for each row. A row that continues before its last tokens overwrites
        them.
        """
        self._reserve(max(feed.start + len(feed.ids) for feed in feeds))
        return torch.cat([self._run(self._step(run)) for run in _dense_runs(feeds)])

    @torch.inference_mode()
    def copy_prefix(self, source: int, target: int, *, length: int) -> None:
        """Copy the first positions of another row's cache."""
        for stored in (*self._keys, *self._values):
            stored[target, :, :length] = stored[source, :, :length]

    def _run(self, step: RowStep) -> Tensor:
        """The logits that are wanted."""
        raise NotImplementedError

    def _reserve(self, length: int) -> None:
        """Make room by doubling, so that the cache is copied only a few times per conversation."""
        if length <= self._capacity:
            return
        capacity = min(self.max_length, max(FIRST_CAPACITY, 2 * self._capacity, length))
        for caches in (self._keys, self._values):
            for index, old in enumerate(caches):
                # One position more than can be used: padding is written there.
                caches[index] = old.new_zeros((self.rows, old.shape[1], capacity + 1, old.shape[3]))
                caches[index][:, :, : self._capacity] = old[:, :, : self._capacity]
        self._capacity = capacity

    def _step(self, feeds: Sequence[Feed]) -> RowStep:
        device = self._device
        first = feeds[0].row
        span = feeds[-1].row - feeds[0].row + 1
        width = max(len(feed.ids) for feed in feeds)
        length = max(feed.start + len(feed.ids) for feed in feeds)
        starts = torch.zeros(span, 1, dtype=torch.long)
        sizes = torch.zeros(span, 1, dtype=torch.long)
        ids = torch.zeros(span, width, dtype=torch.long)
        busy = torch.tensor([feed.row - first for feed in feeds])
        starts[busy, 0] = torch.tensor([feed.start for feed in feeds])
        sizes[busy, 0] = torch.tensor([len(feed.ids) for feed in feeds])
        for feed in feeds:
            ids[feed.row - first, : len(feed.ids)] = torch.tensor(feed.ids)
        offsets = torch.arange(width)[None]
        reach = starts + offsets
        positions = torch.where(offsets < sizes, reach, self._capacity)
        # Padding and idle rows see position 0, so that no row of the softmax is empty.
        mask = torch.arange(length)[None, None, None] <= reach[:, None, :, None]
        rows = torch.tensor([feed.row - first for feed in feeds for _ in range(feed.wanted)])
        columns = torch.tensor([column for feed in feeds for column in range(len(feed.ids))[-feed.wanted :]])
        return RowStep(first, length, *(tensor.to(device) for tensor in (ids, positions, mask, rows, columns)))

    def _append(self, keys: Tensor, values: Tensor, *, index: int, step: RowStep) -> tuple[Tensor, Tensor]:
        """Write a layer's new keys and values; return what the step's rows have cached so far."""
        seen = []
        for caches, new in ((self._keys, keys), (self._values, values)):
            if index == len(caches):
                caches.append(new.new_zeros((self.rows, new.shape[1], self._capacity + 1, new.shape[3])))
            rows = caches[index][step.first : step.first + step.span]
            rows[torch.arange(step.span, device=new.device)[:, None], :, step.positions] = new.transpose(1, 2)
            seen.append(rows[:, :, : step.length])
        return seen[0], seen[1]


def _dense_runs(feeds: Sequence[Feed]) -> list[Sequence[Feed]]:
    """The feeds, split at their widest gaps until enough of the rows in between are busy."""
    span = feeds[-1].row - feeds[0].row + 1
    if len(feeds) >= BUSY_SHARE * span:
        return [feeds]
    gaps = [after.row - before.row for before, after in pairwise(feeds)]
    cut = gaps.index(max(gaps)) + 1
    return [*_dense_runs(feeds[:cut]), *_dense_runs(feeds[cut:])]
