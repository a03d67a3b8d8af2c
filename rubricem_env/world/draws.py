"""Seeded draws that give the same world on every machine.

Only ``Generator.random`` is used: the stream of raw doubles is the part of numpy that does not change between releases.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TypeVar

import numpy as np

from rubricem_env.world.errors import WorldError

Item = TypeVar("Item")


class Stream(IntEnum):
    """Independent streams under one seed, so that a change in one part leaves the others as they were."""

    NAMES = 1
    ENTITIES = 2
    DOCUMENTS = 3
    QUESTIONS = 4
    HOSTILE = 5


def open_stream(seed: int, stream: Stream) -> np.random.Generator:
    """The generator of one part of the world; refuses a negative seed."""
    if seed < 0:
        raise WorldError(f"world seed is {seed}; a seed must be 0 or greater. Pass a whole number such as 0.")
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, int(stream)])))


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
