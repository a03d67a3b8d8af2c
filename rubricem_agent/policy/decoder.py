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
CPU_OPERATIONS, GPU_OPERATIONS = 10, 200
"""About how many operations of a product a core, or a card, does while it reads a byte of memory."""


class Feed(NamedTuple):
    """New tokens of one row, at the positions of its cache from `start` on."""

    row: int
    start: int
    ids: Sequence[int]
    wanted: int = 1
    """The logits after that many of the last tokens are wanted."""


class RowStep(NamedTuple):
    """The new tokens of all rows, right-padded. B rows, T tokens, L cached positions."""

    cached: slice | Tensor
    """The B rows of the cache: neighbours as a slice, or any."""
    length: int
    """L."""
    ids: Tensor
    """(B, T)."""
    positions: Tensor
    """(B, T): the position of each token in its row; the scratch position for padding."""
    mask: Tensor
    """(B, 1, T, L): which cached positions each token sees."""
    rows: Tensor
    """The row of each token whose logits are wanted, counted from the step's first."""
    columns: Tensor
    """Its column."""


class StepShape(NamedTuple):
    """The size of a step; what the feeds do not fill is padding."""

    cached: range | tuple[int, ...]
    """The rows of the cache."""
    width: int
    """T."""
    length: int
    """L."""

    @classmethod
    def of(cls, feeds: Sequence[Feed], rows: range | tuple[int, ...]) -> "StepShape":
        """As small as the feeds permit."""
        return cls(rows, max(len(feed.ids) for feed in feeds), max(feed.start + len(feed.ids) for feed in feeds))


class RowDecoder:
    """A model with a cache of `rows` conversations of at most `max_length` tokens. Not safe to share among threads."""

    can_rewind = True
    """Whether a row goes on before tokens that it has read, without reading it again."""

    def __init__(self, model: PreTrainedModel, *, rows: int, max_length: int) -> None:
        self.max_length = max_length
        self.rows = rows
        self.device = model.device
        self._capacity = 0
        self._held = 0
        """Rows that have room in the cache: they are allocated as they are used."""
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self._num_weights = sum(weight.numel() for weight in model.parameters())
        self._weight_bytes = sum(weight.nbytes for weight in model.parameters())

    def work(self, rows: int, width: int, length: int) -> float:
        """About what a pass takes that reads `width` tokens in each row after `length` cached ones, in operations.

        Weights and caches are read once, however many tokens there are.
        """
        held = sum(stored.nbytes for stored in (*self._keys, *self._values))
        position = held / max(1, self._held * (self._capacity + 1))
        read = self._weight_bytes + rows * length * position
        per_byte = CPU_OPERATIONS if self.device.type == "cpu" else GPU_OPERATIONS
        return 2.0 * self._num_weights * rows * width + per_byte * read

    @torch.inference_mode()
    def logits(self, feeds: Sequence[Feed]) -> Tensor:
        """Append each row's new tokens to its cache; the logits that are wanted, (tokens, vocabulary), float32.

        Feeds are in the order of their rows, one for each row. A row that continues before its last tokens overwrites
        them.
        """
        self._reserve(1 + feeds[-1].row, max(feed.start + len(feed.ids) for feed in feeds))
        return self._logits(feeds)

    @torch.inference_mode()
    def copy_prefix(self, source: int, target: int, *, length: int) -> None:
        """Copy the first positions of another row's cache."""
        self._reserve(1 + max(source, target), length)
        for stored in (*self._keys, *self._values):
            stored[target, :, :length] = stored[source, :, :length]

    def _logits(self, feeds: Sequence[Feed]) -> Tensor:
        if self.device.type == "cpu":
            runs = [(run, range(run[0].row, run[-1].row + 1)) for run in _dense_runs(feeds)]
            return torch.cat([self._run(self._step(run, StepShape.of(run, rows))) for run, rows in runs])
        # One pass costs less than many, although it copies the cache of its rows.
        return self._run(self._step(feeds, StepShape.of(feeds, tuple(feed.row for feed in feeds))))

    def _run(self, step: RowStep) -> Tensor:
        """The logits that are wanted."""
        raise NotImplementedError

    def _reserve(self, rows: int, length: int) -> None:
        """Make room by doubling, so that the cache is copied only a few times."""
        if rows <= self._held and length <= self._capacity:
            return
        before, filled = self._held, self._capacity
        if rows > before:
            self._held = min(self.rows, max(2 * before, rows))
        if length > filled:
            self._capacity = min(self.max_length, max(FIRST_CAPACITY, 2 * filled, length))
        for caches in (self._keys, self._values):
            for index, old in enumerate(caches):
                caches[index] = self._room(old)
                caches[index][:before, :, :filled] = old[:, :, :filled]

    def _room(self, like: Tensor) -> Tensor:
        # One position more than can be used: padding is written there.
        return like.new_zeros((self._held, like.shape[1], self._capacity + 1, like.shape[3]))

    def _step(self, feeds: Sequence[Feed], shape: StepShape) -> RowStep:
        device, cached = self.device, shape.cached
        place = {number: index for index, number in enumerate(cached)}
        starts = torch.zeros(len(cached), 1, dtype=torch.long)
        sizes = torch.zeros(len(cached), 1, dtype=torch.long)
        ids = torch.zeros(len(cached), shape.width, dtype=torch.long)
        busy = torch.tensor([place[feed.row] for feed in feeds])
        starts[busy, 0] = torch.tensor([feed.start for feed in feeds])
        sizes[busy, 0] = torch.tensor([len(feed.ids) for feed in feeds])
        for feed in feeds:
            ids[place[feed.row], : len(feed.ids)] = torch.tensor(feed.ids)
        offsets = torch.arange(shape.width)[None]
        positions = torch.where(offsets < sizes, starts + offsets, self._capacity).to(device)
        # Padding and idle rows see position 0, so that no row of the softmax is empty.
        reach = (starts + offsets).to(device)
        mask = torch.arange(shape.length, device=device) <= reach[:, None, :, None]
        rows = torch.tensor([place[feed.row] for feed in feeds for _ in range(feed.wanted)]).to(device)
        columns = torch.tensor([column for feed in feeds for column in range(len(feed.ids))[-feed.wanted :]]).to(device)
        held = slice(cached.start, cached.stop) if isinstance(cached, range) else torch.tensor(cached).to(device)
        return RowStep(held, shape.length, ids.to(device), positions, mask, rows, columns)

    def _append(self, keys: Tensor, values: Tensor, *, index: int, step: RowStep) -> tuple[Tensor, Tensor]:
        """Write a layer's new keys and values; return what the step's rows have cached so far."""
        seen = []
        for caches, new in ((self._keys, keys), (self._values, values)):
            if index == len(caches):
                caches.append(self._room(new))
            numbers = step.cached
            if isinstance(numbers, slice):
                numbers = torch.arange(numbers.start, numbers.stop, device=new.device)
            caches[index][numbers[:, None], :, step.positions] = new.transpose(1, 2)
            seen.append(caches[index][step.cached, :, : step.length])
        return seen[0], seen[1]


def _dense_runs(feeds: Sequence[Feed]) -> list[Sequence[Feed]]:
    """The feeds, split at their widest gaps until enough of the rows in between are busy."""
    span = feeds[-1].row - feeds[0].row + 1
    if len(feeds) >= BUSY_SHARE * span:
        return [feeds]
    gaps = [after.row - before.row for before, after in pairwise(feeds)]
    cut = gaps.index(max(gaps)) + 1
    return [*_dense_runs(feeds[:cut]), *_dense_runs(feeds[cut:])]
