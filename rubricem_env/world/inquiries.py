"""The kinds of question that can be asked of entities: chains, statements, profiles, changes, comparisons."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import NamedTuple

from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_env.world.documents import Library
from rubricem_env.world.entities import Entity
from rubricem_env.world.needs import Need, change_needs, fact_need, verdict_need
from rubricem_env.world.vocabulary import domain_named


class Inquiry(NamedTuple):
    """A question before it is chosen: its words, the entities that it names, and what it needs."""

    kind: str
    text: str
    named: tuple[Entity, ...]
    needs: tuple[Need, ...]


Maker = Callable[[Library, Sequence[Entity]], Iterator[Inquiry]]


def _ask_chains(library: Library, entities: Sequence[Entity], *, hops: int) -> Iterator[Inquiry]:
    """One number of an entity (one hop), or of what it is linked to, directly or through another."""
    for entity in entities:
        links: list[Need] = []
        phrase = f"the {_titled(entity)}"
        last = entity
        for number in range(1, hops):
            link = domain_named(last.domain).link
            links.append(fact_need(library, last, link, number=number, chained=number > 1))
            phrase = f"the {link} of {phrase}"
            last = library.entities[last.related_id]
        for attribute in domain_named(last.domain).attributes:
            goal = fact_need(library, last, attribute.name, number=hops, chained=hops > 1)
            text = f"What is the {attribute.name} of {phrase}?"
            yield Inquiry("fact" if hops == 1 else "chain", text, (entity,), (*links, goal))


def _ask_statements(library: Library, entities: Sequence[Entity], *, with_link: bool) -> Iterator[Inquiry]:
    """Two numbers of one entity (a pair), or two and its link (a triple)."""
    for entity in entities:
        link = domain_named(entity.domain).link
        for first, second in combinations([fact.attribute for fact in entity.facts], 2):
            if with_link:
                text = f"State the {first}, the {second} and the {link} of the {_titled(entity)}."
                yield _listing(library, "triple", text, entity=entity, attributes=(first, second, link))
            else:
                text = f"State the {first} and the {second} of the {_titled(entity)}."
                yield _listing(library, "pair", text, entity=entity, attributes=(first, second))


def ask_profiles(library: Library, entities: Sequence[Entity]) -> Iterator[Inquiry]:
    """All numbers and the link of one entity."""
    for entity in entities:
        domain = domain_named(entity.domain)
        names = (*(attribute.name for attribute in domain.attributes), domain.link)
        text = f"Write a profile of the {_titled(entity)} with its {names[0]}, {names[1]}, {names[2]} and {names[3]}."
        yield _listing(library, "profile", text, entity=entity, attributes=names)


def ask_changes(library: Library, entities: Sequence[Entity]) -> Iterator[Inquiry]:
    """Why a number differs between two editions."""
    for entity in entities:
        if entity.flaw.kind == "revision":
            text = f"Explain the change of the {entity.flaw.attribute} of the {_titled(entity)}."
            yield Inquiry("change", text, (entity,), change_needs(library, entity, entity.flaw))


def ask_comparisons(library: Library, entities: Sequence[Entity]) -> Iterator[Inquiry]:
    """One number of two entities that do not look alike and do not tie."""
    for left, right in combinations(entities, 2):
        for attribute in domain_named(left.domain).attributes:
            first = fact_need(library, left, attribute.name, number=1)
            second = fact_need(library, right, attribute.name, number=2)
            if left.id in right.lookalike_ids or first.value == second.value:
                continue
            winner = left if _number(first) > _number(second) else right
            text = f"Compare the {attribute.name} of the {left.domain} {left.name} and {right.name}."
            needs = (first, second, verdict_need(winner, attribute.name, (first, second)))
            yield Inquiry("comparison", text, (left, right), needs)


MAKERS: dict[AnswerFormat, tuple[Maker, ...]] = {
    AnswerFormat.EXACT: (partial(_ask_chains, hops=1), partial(_ask_chains, hops=2), partial(_ask_chains, hops=3)),
    AnswerFormat.SHORT: (partial(_ask_statements, with_link=False), partial(_ask_statements, with_link=True)),
    AnswerFormat.LONG: (ask_comparisons, ask_changes, ask_profiles),
}
"""The kinds of question of each format, in the order in which they take turns."""


def _listing(library: Library, kind: str, text: str, *, entity: Entity, attributes: tuple[str, ...]) -> Inquiry:
    needs = tuple(fact_need(library, entity, name, number=number) for number, name in enumerate(attributes, start=1))
    return Inquiry(kind, text, (entity,), needs)


def _titled(entity: Entity) -> str:
    return f"{domain_named(entity.domain).singular} {entity.name}"


def _number(need: Need) -> int:
    return int(need.value.split()[0])
