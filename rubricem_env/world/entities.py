"""The entities of a world: true facts, and flaws.

The split of a name depends on its two words alone, so a test name is a train name in no world.
"""

from typing import Literal, NamedTuple

import numpy as np

from rubricem_env.domain.base import Frozen
from rubricem_env.world.draws import draw_index, open_stream, pick, shuffled
from rubricem_env.world.names import SPLITS, Split, name_slots
from rubricem_env.world.vocabulary import CAUSES, DOMAINS, Attribute, Domain, domain_named


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


class Fact(NamedTuple):
    """An attribute and its value."""

    attribute: str
    value: str
    """The value has its unit, as a document writes it: "120 km"."""


class Entity(Frozen):
    """One thing of the world.

    ``facts`` are the three numbers in a random order: the first is on its page, the others are on its sheet. ``year``
    is that of the current edition.
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
                facts = shuffled(rng, [Fact(*item) for item in sorted(values.items())])
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
    name = (facts[0] if flaw == 0 else pick(rng, facts[1:])).attribute
    attribute = next(attribute for attribute in domain.attributes if attribute.name == name)
    wrong = _draw_value(rng, attribute, {fact.value for fact in facts})
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
