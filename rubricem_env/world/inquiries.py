"""What can be asked of a group of entities: one maker of candidates for each kind of question."""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from rubricem_env.domain.query import AnswerFormat
from rubricem_env.world.entities import Entity, Revision
from rubricem_env.world.needs import Ground, change_needs, fact_need, verdict_need
from rubricem_env.world.truth import Need
from rubricem_env.world.vocabulary import domain_named


class Inquiry(NamedTuple):
    """A question before it is chosen: its words, the entities that it names, and what it needs."""

    kind: str
    text: str
    named: tuple[Entity, ...]
    needs: tuple[Need, ...]


Maker = Callable[[Ground, Sequence[Entity]], Iterator[Inquiry]]


def ask_facts(ground: Ground, entities: Sequence[Entity]) -> Iterator[Inquiry]:
    """One number of one entity."""
    return _chains(ground, entities, hops=1)


def ask_chains_of_two(ground: Ground, entities: Sequence[Entity]) -> Iterator[Inquiry]:
    """A number of what the entity is linked to."""
    return _chains(ground, entities, hops=2)


def ask_chains_of_three(ground: Ground, entities: Sequence[Entity]) -> Iterator[Inquiry]:
    """A number two links away."""
    return _chains(ground, entities, hops=3)


def ask_pairs(ground: Ground, entities: Sequence[Entity]) -> Iterator[Inquiry]:
    """Two numbers of one entity."""
    for entity in entities:
        for names in combinations([fact.attribute for fact in entity.facts], 2):
            text = f"State the {names[0]} and the {names[1]} of the {_titled(entity)}."
            yield _listing(ground, "pair", text, entity=entity, attributes=names)


def ask_triples(ground: Ground, entities: Sequence[Entity]) -> Iterator[Inquiry]:
    """Two numbers and the link of one entity."""
    for entity in entities:
        link = domain_named(entity.domain).relation.name
        for names in combinations([fact.attribute for fact in entity.facts], 2):
            text = f"State the {names[0]}, the {names[1]} and the {link} of the {_titled(entity)}."
            yield _listing(ground, "triple", text, entity=entity, attributes=(*names, link))


def ask_profiles(ground: Ground, entities: Sequence[Entity]) -> Iterator[Inquiry]:
    """All numbers and the link of one entity."""
    for entity in entities:
        domain = domain_named(entity.domain)
        names = (*(attribute.name for attribute in domain.attributes), domain.relation.name)
        text = f"Write a profile of the {_titled(entity)} with its {names[0]}, {names[1]}, {names[2]} and {names[3]}."
        yield _listing(ground, "profile", text, entity=entity, attributes=names)


def ask_changes(ground: Ground, entities: Sequence[Entity]) -> Iterator[Inquiry]:
    """Why a number differs between two editions."""
    for entity in entities:
        if isinstance(entity.flaw, Revision):
            text = f"Explain the change of the {entity.flaw.attribute} of the {_titled(entity)}."
            yield Inquiry("change", text, (entity,), change_needs(ground, entity, entity.flaw))


def ask_comparisons(ground: Ground, entities: Sequence[Entity]) -> Iterator[Inquiry]:
    """One number of two entities that do not look alike and do not tie."""
    for left, right in combinations(entities, 2):
        for attribute in domain_named(left.domain).attributes:
            first = fact_need(ground, left, attribute.name, number=1)
            second = fact_need(ground, right, attribute.name, number=2)
            if left.id in right.lookalike_ids or first.value == second.value:
                continue
            winner = left if _number(first) > _number(second) else right
            text = f"Compare the {attribute.name} of the {left.domain} {left.name} and {right.name}."
            needs = (first, second, verdict_need(winner, attribute.name, (first, second)))
            yield Inquiry("comparison", text, (left, right), needs)


MAKERS: dict[AnswerFormat, tuple[Maker, ...]] = {
    AnswerFormat.EXACT: (ask_facts, ask_chains_of_two, ask_chains_of_three),
    AnswerFormat.SHORT: (ask_pairs, ask_triples),
    AnswerFormat.LONG: (ask_comparisons, ask_changes, ask_profiles),
}
"""The kinds of question of each format, in the order in which they take turns."""


def _chains(ground: Ground, entities: Sequence[Entity], *, hops: int) -> Iterator[Inquiry]:
    for entity in entities:
        links: list[Need] = []
        phrase, last = f"the {_titled(entity)}", entity
        for number in range(1, hops):
            link = domain_named(last.domain).relation.name
            links.append(fact_need(ground, last, link, number=number, chained=number > 1))
            phrase, last = f"the {link} of {phrase}", ground.entities[last.related_id]
        for attribute in domain_named(last.domain).attributes:
            goal = fact_need(ground, last, attribute.name, number=hops, chained=hops > 1)
            text = f"What is the {attribute.name} of {phrase}?"
            yield Inquiry("fact" if hops == 1 else "chain", text, (entity,), (*links, goal))


def _listing(ground: Ground, kind: str, text: str, *, entity: Entity, attributes: tuple[str, ...]) -> Inquiry:
    needs = tuple(fact_need(ground, entity, name, number=number) for number, name in enumerate(attributes, start=1))
    return Inquiry(kind, text, (entity,), needs)


def _titled(entity: Entity) -> str:
    return f"{domain_named(entity.domain).singular} {entity.name}"


def _number(need: Need) -> int:
    return int(need.value.split()[0])
