"""Samples laid into rows: what one forward pass takes. A row may hold several samples, which do not see each other."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rubricem_agent.data.chatml import TokenSample


class TokenizedRow(NamedTuple):
    """One row of tokens."""

    ids: Tensor
    """(1, length)."""
    positions: Tensor
    """(1, length), counted anew from 0 for each sample: by this, attention knows where a sample begins."""
    predicting: Tensor
    """Indices of the tokens whose successor is learnt."""
    targets: Tensor
    """Those successors."""

    @property
    def num_targets(self) -> int:
        return len(self.targets)

    def to(self, device: torch.device) -> "TokenizedRow":
        return TokenizedRow(*(tensor.to(device) for tensor in self))


def pack(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Indices of samples by row, longest first into the first row with room; no row is longer than `capacity`."""
    rows: list[list[int]] = []
    room: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        place = next((row for row, left in enumerate(room) if left >= lengths[index]), len(rows))
        if place == len(rows):
            rows.append([])
            room.append(capacity)
        rows[place].append(index)
        room[place] -= lengths[index]
    return rows


def make_rows(samples: Sequence[TokenSample], *, capacity: int, packing: bool) -> list[TokenizedRow]:
    """The rows of one optimiser step."""
    lengths = [len(sample.ids) for sample in samples]
    groups = pack(lengths, capacity) if packing else [[index] for index in range(len(samples))]
    return [make_row([samples[index] for index in group]) for group in groups]


def make_row(samples: Sequence[TokenSample]) -> TokenizedRow:
    """The samples end to end. The first token of a sample is never a target: nothing of its own precedes it."""
    ids = [token for sample in samples for token in sample.ids]
    positions = [place for sample in samples for place in range(len(sample.ids))]
    learnt = list(_learnt_places(samples))
    return TokenizedRow(
        ids=torch.tensor([ids]),
        positions=torch.tensor([positions]),
        predicting=torch.tensor([place - 1 for place in learnt], dtype=torch.long),
        targets=torch.tensor([ids[place] for place in learnt], dtype=torch.long),
    )


def _learnt_places(samples: Sequence[TokenSample]) -> Iterator[int]:
    start = 0
    for sample in samples:
        yield from (start + place for place, has_loss in enumerate(sample.has_loss) if has_loss and place)
        start += len(sample.ids)
