"""Samples laid end to end, without padding, and what they begin with alike laid down once.

Siblings of one prompt, above all the candidates of a reflection, repeat a beginning that is many times as long as what
the policy wrote. A causal model reads it to the same hidden states each time, so it is read once; gradients add up.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rubricem_agent.learn.batch import Batch

Index = npt.NDArray[np.intp]


class Run(NamedTuple):
    """The tokens of one sample: its own, and before them a beginning that it shares with an earlier one."""

    head: int
    """Where the shared beginning lies."""
    shared: int
    """Tokens of it; 0 for a sample that stands by itself."""
    start: int
    """Where its own tokens lie."""
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
    """(tokens,): where each stands in its own sample."""
    runs: tuple[Run, ...]
    """One for each sample of `part`, in its order."""

    def places(self, rows: Index, columns: Index) -> Index:
        """Where the tokens of samples `rows` at `columns` lie."""
        head, shared, start = (np.array([run[field] for run in self.runs], dtype=np.intp)[rows] for field in range(3))
        return np.where(columns < shared, head + columns, start + columns - shared)


def pack_samples(batch: Batch, *, max_tokens: int) -> list[Pack]:
    """The batch, in its order, in packs of at most `max_tokens` tokens; a longer sample is a pack of its own.

    A sample shares with the last one before it that stands by itself, so siblings must follow each other.
    """
    packs: list[Pack] = []
    runs: list[Run] = []
    first = head = 0
    for row, length in enumerate(batch.lengths.tolist()):
        shared = _worth_sharing(batch, head, row) if runs else 0
        if runs and runs[-1].stop + length - shared > max_tokens:
            packs.append(_pack(batch, first, runs))
            runs, first, shared = [], row, 0
        if not shared:
            head = row
        start = runs[-1].stop if runs else 0
        runs.append(Run(runs[head - first].start if shared else start, shared, start, start + length - shared))
    return [*packs, _pack(batch, first, runs)] if runs else packs


def _worth_sharing(batch: Batch, head: int, row: int) -> int:
    """Tokens that two samples begin with alike, where they are at least half of the later one.

    Attention to a beginning that lies elsewhere costs more than the causal kind, so a short one is read again. The last
    token is never shared: no run is empty.
    """
    length = int(min(batch.lengths[head], batch.lengths[row] - 1))
    differs = np.flatnonzero(batch.token_ids[head, :length] != batch.token_ids[row, :length])
    shared = int(differs[0]) if len(differs) else length
    return shared if 2 * shared >= int(batch.lengths[row]) else 0


def _pack(batch: Batch, first: int, runs: list[Run]) -> Pack:
    part = batch.select(range(first, first + len(runs)))
    spans = [(row, run.shared, run.length) for row, run in enumerate(runs)]
    ids = np.concatenate([part.token_ids[row, shared:length] for row, shared, length in spans])
    positions = np.concatenate([np.arange(shared, length) for _, shared, length in spans])
    return Pack(part, ids, positions, tuple(runs))
