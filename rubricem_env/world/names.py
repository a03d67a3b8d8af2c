"""The names of a world's entities, and the split that a name belongs to."""

from typing import Literal, NamedTuple, get_args

import numpy as np

from rubricem_env.domain.errors import UsageError
from rubricem_env.world.draws import open_stream, shuffled
from rubricem_env.world.vocabulary import DOMAINS, FIRST_WORDS, SECOND_WORDS

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
SMALLEST_WORLD = 9
"""Entities per domain: each split needs three, so that two of them are not look-alikes."""
LARGEST_WORLD = 180
"""Entities per domain: beyond it the held-out names may run out."""


class Slot(NamedTuple):
    """A name for one entity."""

    name: str
    lookalikes: tuple[str, ...]
    """The names that can be mistaken for it."""


def split_of_name(first: int, second: int) -> Split:
    """The split of the name made of these two word indices: three fifths train, one fifth each held out."""
    residue = (first + 2 * second) % 5
    return "validation" if residue == 0 else "test" if residue == 1 else "train"


def split_sizes(total: int, what: str) -> dict[Split, int]:
    """How many of the total each split gets: a fifth, but at least three, to validation and to test."""
    held_out = max(3, total // 5)
    if total < SMALLEST_WORLD:
        raise UsageError(
            f"{what} is {total}; train, validation and test need three each. Use {SMALLEST_WORLD} or more."
        )
    return {"train": total - 2 * held_out, "validation": held_out, "test": held_out}


def name_slots(seed: int, entities_per_domain: int) -> dict[tuple[str, Split], tuple[Slot, ...]]:
    """Names for every domain and split, no name twice; of every three, the first two look alike."""
    sizes = split_sizes(entities_per_domain, "entities_per_domain")
    if entities_per_domain > LARGEST_WORLD:
        raise UsageError(
            f"entities_per_domain is {entities_per_domain}; names last for {LARGEST_WORLD}. Use that, or more seeds."
        )
    rng = open_stream(seed, "names")
    slots: dict[tuple[str, Split], tuple[Slot, ...]] = {}
    for split in SPLITS:
        pairs = _lookalike_pairs(rng, split)
        for domain in DOMAINS:
            slots[domain.name, split] = tuple(_take_slots(pairs, sizes[split]))
    return slots


def _lookalike_pairs(rng: np.random.Generator, split: Split) -> list[tuple[str, str]]:
    """Pairs of names of the split that share the first word; every name is in one pair at most."""
    pairs: list[tuple[str, str]] = []
    for first, word in enumerate(FIRST_WORDS):
        row = [other for second, other in enumerate(SECOND_WORDS) if split_of_name(first, second) == split]
        row = shuffled(rng, row)
        pairs += [(f"{word} {left}", f"{word} {right}") for left, right in zip(row[::2], row[1::2], strict=False)]
    return shuffled(rng, pairs)


def _take_slots(pairs: list[tuple[str, str]], count: int) -> list[Slot]:
    slots: list[Slot] = []
    while len(slots) < count:
        left, right = pairs.pop()
        if len(slots) % 3 == 2 or len(slots) + 1 == count:
            slots.append(Slot(left, ()))
        else:
            slots += [Slot(left, (right,)), Slot(right, (left,))]
    return slots
