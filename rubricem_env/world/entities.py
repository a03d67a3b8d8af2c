"""The words of the almanac as tables, and the entities of a world: names, splits, true facts, and flaws.

The whole world uses a few hundred words, so that a very small model can learn to read and copy it.

The world is the same on every machine: only ``Generator.random`` is used, because numpy keeps the stream of raw doubles
between releases. The split of a name depends on its two words alone, so a test name is a train name in no world.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np
from pydantic import TypeAdapter

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.inputs import package_text


class Attribute(NamedTuple):
    """A number that each entity has: low, low + step, ... up to high, in the unit."""

    name: str
    unit: str
    low: int
    high: int
    step: int


class Domain(NamedTuple):
    """One subject of the almanac."""

    name: str
    singular: str
    attributes: tuple[Attribute, Attribute, Attribute]
    link: str
    """The relation of every entity to one entity of the domain `target`."""
    target: str
    aspect: str
    """By convention, a good answer states it for every entity; it has one of `aspect_values`."""
    aspect_values: tuple[str, ...]
    closing: str
    """By convention, these words end a long answer; they are the same for the whole domain."""


_WORDS: Mapping[str, Any] = json.loads(package_text("rubricem_env.world", "vocabulary.json"))
DOMAINS = TypeAdapter(tuple[Domain, ...]).validate_python(_WORDS["domains"])
CAUSES: Sequence[str] = _WORDS["causes"]
"""What made a value change between two editions."""
FIRST_WORDS: Sequence[str] = _WORDS["first_words"]
SECOND_WORDS: Sequence[str] = _WORDS["second_words"]
"""A name is a first word and a second word: "Amber Falcon"."""


def domain_named(name: str) -> Domain:
    """The domain of that plural name, such as "rivers"."""
    domains = {domain.name: domain for domain in DOMAINS}
    if name not in domains:
        raise UsageError(f"the almanac has no domain {name!r}; it has {', '.join(domains)}. Use one of these.")
    return domains[name]


Item = TypeVar("Item")

Part = Literal["names", "entities", "documents", "questions", "hostile"]
_PARTS: tuple[Part, ...] = get_args(Part)


def open_stream(seed: int, part: Part) -> np.random.Generator:
    """The generator of one part of the world, independent of the other parts; refuses a negative seed."""
    if seed < 0:
        raise UsageError(f"world seed is {seed}; a seed must be 0 or greater. Pass a whole number such as 0.")
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 1 + _PARTS.index(part)])))


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


Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)

SMALLEST_WORLD = 9
"""Entities per domain: each split needs three, so that two of them are not look-alikes."""
LARGEST_WORLD = 180
"""Entities per domain: beyond it the held-out names may run out."""


Slot = tuple[str, tuple[str, ...]]
"""A name for one entity, and the names that can be mistaken for it."""


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
            slots.append((left, ()))
        else:
            slots += [(left, (right,)), (right, (left,))]
    return slots


class Flaw(Frozen):
    """What makes the sources about an attribute of an entity disagree, or leaves it without a value.

    ``kind``: revision is an older edition with the wrong value, which a cause made change in a later year; dispute is a
    sheet and a letter that disagree until a ruling decides; gap is a document that names the attribute without a value.
    """

    kind: Literal["revision", "dispute", "gap"]
    attribute: str
    wrong_value: str = ""
    old_year: int = 0
    change_year: int = 0
    cause: str = ""
    letter_is_right: bool = False


Fact = tuple[str, str]
"""An attribute and its true value with the unit, as a document writes it: "120 km"."""


class Entity(Frozen):
    """One thing of the world.

    ``facts`` are the three numbers in a random order: the first is on its page, the others are on its sheet. ``year`` is
    that of the current edition.
    """

    id: str
    name: str
    domain: str
    split: Split
    year: int
    facts: tuple[Fact, Fact, Fact]
    related_id: str
    related_name: str
    aspect_value: str
    flaw: Flaw
    lookalike_ids: tuple[str, ...]

    def value_of(self, attribute: str) -> str:
        """What is true: a number, the related name, or the value of the domain's aspect."""
        domain = domain_named(self.domain)
        words = {domain.link: self.related_name, domain.aspect: self.aspect_value}
        return {**words, **dict(self.facts)}[attribute]


def entity_id(name: str) -> str:
    """The id of the entity of that name: "Amber Falcon" is "amber-falcon"."""
    return name.lower().replace(" ", "-")


def populate(seed: int, entities_per_domain: int) -> tuple[Entity, ...]:
    """All entities, by domain and split; every relation stays within its split."""
    slots = name_slots(seed, entities_per_domain)
    rng = open_stream(seed, "entities")
    entities: dict[str, Entity] = {}
    for domain in DOMAINS:
        for split in SPLITS:
            flaws = shuffled(rng, [index % 3 for index in range(len(slots[domain.name, split]))])
            targets = slots[domain.target, split]
            for (name, lookalikes), flaw in zip(slots[domain.name, split], flaws, strict=True):
                values = _draw_values(rng, domain, [entities[i] for i in map(entity_id, lookalikes) if i in entities])
                related, _ = pick(rng, targets)
                facts = shuffled(rng, sorted(values.items()))
                entities[entity_id(name)] = Entity(
                    id=entity_id(name),
                    name=name,
                    domain=domain.name,
                    split=split,
                    year=2022 + draw_index(rng, 3),
                    facts=(facts[0], facts[1], facts[2]),
                    related_id=entity_id(related),
                    related_name=related,
                    aspect_value=pick(rng, domain.aspect_values),
                    flaw=_make_flaw(rng, domain, facts, flaw),
                    lookalike_ids=tuple(map(entity_id, lookalikes)),
                )
    return tuple(entities.values())


def _draw_values(rng: np.random.Generator, domain: Domain, rivals: list[Entity]) -> dict[str, str]:
    """A value for each attribute that no look-alike shares, nor any attribute of this entity with the same unit."""
    values: dict[str, str] = {}
    for attribute in domain.attributes:
        taken = set(values.values()) | {rival.value_of(attribute.name) for rival in rivals}
        values[attribute.name] = _draw_value(rng, attribute, taken)
    return values


def _draw_value(rng: np.random.Generator, attribute: Attribute, taken: set[str]) -> str:
    steps = range(attribute.low, attribute.high + 1, attribute.step)
    return pick(rng, [value for value in (f"{number} {attribute.unit}" for number in steps) if value not in taken])


def _make_flaw(rng: np.random.Generator, domain: Domain, facts: list[Fact], flaw: int) -> Flaw:
    """A revision of the page, a dispute about the sheet, or a gap."""
    name, _ = facts[0] if flaw == 0 else pick(rng, facts[1:])
    attribute = next(attribute for attribute in domain.attributes if attribute.name == name)
    wrong = _draw_value(rng, attribute, {value for _, value in facts})
    if flaw == 0:
        return Flaw(
            kind="revision",
            attribute=name,
            wrong_value=wrong,
            old_year=2010 + draw_index(rng, 6),
            change_year=2016 + draw_index(rng, 5),
            cause=pick(rng, CAUSES),
        )
    if flaw == 1:
        return Flaw(kind="dispute", attribute=name, wrong_value=wrong, letter_is_right=rng.random() < 0.5)
    return Flaw(kind="gap", attribute=name)
