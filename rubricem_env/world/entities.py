"""The entities of a world: what is true of each, and where its sources will disagree."""

from typing import Literal

import numpy as np

from rubricem_env.domain.base import Frozen
from rubricem_env.world.draws import Stream, draw_index, open_stream, pick, shuffled
from rubricem_env.world.splits import Slot, Split, name_slots
from rubricem_env.world.vocabulary import CAUSES, DOMAINS, Attribute, Domain, domain_named


class Revision(Frozen):
    """An older edition states the old value; a cause made it change in the year of the change."""

    kind: Literal["revision"] = "revision"
    attribute: str
    old_value: str
    old_year: int
    change_year: int
    cause: str


class Dispute(Frozen):
    """The sheet and a letter disagree; a ruling settles it, now for the one, now for the other."""

    kind: Literal["dispute"] = "dispute"
    attribute: str
    wrong_value: str
    letter_is_right: bool


class Gap(Frozen):
    """A document bears the name and the attribute, but holds no value."""

    kind: Literal["gap"] = "gap"
    attribute: str


class Fact(Frozen):
    """The true value of one attribute, with its unit, as a document writes it: "120 km"."""

    attribute: str
    value: str


class Entity(Frozen):
    """One thing of the world.

    ``facts`` are the three numbers in an order of its own: the first is on its page, the others are on its sheet.
    ``year`` is that of the current edition.
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
    flaw: Revision | Dispute | Gap
    lookalike_ids: tuple[str, ...]

    def value_of(self, attribute: str) -> str:
        """What is true: a number, the related name, or the value of the domain's aspect."""
        domain = domain_named(self.domain)
        words = {domain.relation.name: self.related_name, domain.convention.aspect: self.aspect_value}
        return {**words, **{fact.attribute: fact.value for fact in self.facts}}[attribute]


def entity_id(name: str) -> str:
    """The id of the entity of that name: "Amber Falcon" is "amber-falcon"."""
    return name.lower().replace(" ", "-")


def populate(seed: int, entities_per_domain: int) -> tuple[Entity, ...]:
    """All entities, by domain and split; every relation stays within its split."""
    slots = name_slots(seed, entities_per_domain)
    rng = open_stream(seed, Stream.ENTITIES)
    entities: dict[str, Entity] = {}
    for domain in DOMAINS:
        for split in ("train", "validation", "test"):
            flaws = shuffled(rng, [index % 3 for index in range(len(slots[domain.name, split]))])
            targets = slots[domain.relation.target, split]
            for slot, flaw in zip(slots[domain.name, split], flaws, strict=True):
                values = _draw_values(
                    rng, domain, [entities[i] for i in map(entity_id, slot.lookalikes) if i in entities]
                )
                related = pick(rng, targets).name
                made = _make_entity(rng, domain, split, slot=slot, values=values, related=related, flaw=flaw)
                entities[made.id] = made
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


def _make_entity(
    rng: np.random.Generator,
    domain: Domain,
    split: Split,
    *,
    slot: Slot,
    values: dict[str, str],
    related: str,
    flaw: int,
) -> Entity:
    facts = [Fact(attribute=name, value=value) for name, value in shuffled(rng, sorted(values.items()))]
    year = 2022 + draw_index(rng, 3)
    return Entity(
        id=entity_id(slot.name),
        name=slot.name,
        domain=domain.name,
        split=split,
        year=year,
        facts=(facts[0], facts[1], facts[2]),
        related_id=entity_id(related),
        related_name=related,
        aspect_value=pick(rng, domain.convention.values),
        flaw=_make_flaw(rng, domain, facts, flaw),
        lookalike_ids=tuple(entity_id(name) for name in slot.lookalikes),
    )


def _make_flaw(rng: np.random.Generator, domain: Domain, facts: list[Fact], flaw: int) -> Revision | Dispute | Gap:
    """A revision of the page, a dispute about the sheet, or a gap."""
    fact = facts[0] if flaw == 0 else pick(rng, facts[1:])
    attribute = next(attribute for attribute in domain.attributes if attribute.name == fact.attribute)
    wrong = _draw_value(rng, attribute, {fact.value for fact in facts})
    if flaw == 0:
        return Revision(
            attribute=fact.attribute,
            old_value=wrong,
            old_year=2010 + draw_index(rng, 6),
            change_year=2016 + draw_index(rng, 5),
            cause=pick(rng, CAUSES),
        )
    if flaw == 1:
        return Dispute(attribute=fact.attribute, wrong_value=wrong, letter_is_right=rng.random() < 0.5)
    return Gap(attribute=fact.attribute)
