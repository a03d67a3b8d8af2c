"""Random draws that are the same on every machine.

Only ``Generator.random`` is used, because numpy keeps the stream of raw doubles between releases.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Literal, TypeVar, get_args

import numpy as np

from rubricem_env.domain.errors import UsageError

Item = TypeVar("Item")
Part = Literal["names", "entities", "documents", "questions", "hostile", "tables", "deep"]
_PARTS: tuple[Part, ...] = get_args(Part)


def open_stream(seed: int, part: Part) -> np.random.Generator:
    """The generator of one part of the world, independent of the other parts; refuses a negative seed."""
    if seed < 0:
        raise UsageError(f"world seed is {seed}; a seed must be 0 or greater. Pass a whole number such as 0.")
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 1 + _PARTS.index(part)])))


def open_trace(seed: int, *, question: str, world: str) -> np.random.Generator:
    """The generator of one trace.

    A question's id is the same in every world: without the world it would have the same draws in each.
    """
    key = int.from_bytes(hashlib.sha256(f"{world}{question}".encode()).digest()[:8])
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, key])))


def draw_index(rng: np.random.Generator, count: int) -> int:
    """A whole number from 0 to count - 1, each as likely."""
    return int(rng.random() * count)


def pick(rng: np.random.Generator, items: Sequence[Item]) -> Item:
    """One of the items, which must not be empty."""
    return items[draw_index(rng, len(items))]


def shuffled(rng: np.random.Generator, items: Iterable[Item]) -> list[Item]:
    """The items in a new list, every order as likely."""
    order = list(items)
    for last in range(len(order) - 1, 0, -1):
        other = draw_index(rng, last + 1)
        order[last], order[other] = order[other], order[last]
    return order
