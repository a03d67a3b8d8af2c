"""How needs, conventions and traps are read off a world."""

from typing import NamedTuple

from rubricem_env.world.documents import CONVENTION, DocumentKind, Library
from rubricem_env.world.entities import Entity, Revision
from rubricem_env.world.pages import sentence
from rubricem_env.world.truth import ImplicitNeed, Need, Trap, TrapKind
from rubricem_env.world.vocabulary import domain_named


class Ground(NamedTuple):
    """A world as its author sees it: the entities by id, and the library."""

    entities: dict[str, Entity]
    library: Library


def fact_need(ground: Ground, entity: Entity, attribute: str, *, number: int, chained: bool = False) -> Need:
    """The true value of the attribute; a chained need depends on the need before it."""
    value = entity.value_of(attribute)
    return Need(
        id=f"n{number}",
        kind="link" if attribute == domain_named(entity.domain).relation.name else "fact",
        title=f"{attribute} of {entity.name}",
        subject_id=entity.id,
        attribute=attribute,
        value=value,
        wording=value,
        sentence=sentence(attribute, entity.name, value),
        document_ids=ground.library.holding(entity.id, attribute, value),
        search_terms=f"{entity.name} {attribute}",
        depends_on=(f"n{number - 1}",) if chained else (),
    )


def change_needs(ground: Ground, entity: Entity, flaw: Revision) -> tuple[Need, ...]:
    """The old value, the new value and the cause."""
    new = fact_need(ground, entity, flaw.attribute, number=2)
    old = new.model_copy(
        update={
            "id": "n1",
            "title": f"old {flaw.attribute} of {entity.name}",
            "value": flaw.old_value,
            "wording": flaw.old_value,
            "sentence": f"The old {flaw.attribute} of {entity.name} is {flaw.old_value}.",
            "document_ids": ground.library.holding(entity.id, flaw.attribute, flaw.old_value),
        }
    )
    cause = Need(
        id="n3",
        kind="cause",
        title=f"cause of the change of the {flaw.attribute} of {entity.name}",
        subject_id=entity.id,
        attribute=f"{flaw.attribute} change",
        value=flaw.cause,
        wording=flaw.cause,
        sentence=f"A {flaw.cause} changed the {flaw.attribute} of {entity.name}.",
        document_ids=ground.library.holding(entity.id, f"{flaw.attribute} change", flaw.cause),
        search_terms=f"{entity.name} {flaw.attribute} change",
    )
    return old, new, cause


def verdict_need(winner: Entity, attribute: str, facts: tuple[Need, Need]) -> Need:
    """Which of the two compared entities has the greater value; it follows from the two facts."""
    wording = f"{winner.name} has the greater {attribute}"
    return Need(
        id="n3",
        kind="verdict",
        title=f"which has the greater {attribute}",
        subject_id=winner.id,
        attribute=attribute,
        value=winner.name,
        wording=wording,
        sentence=f"{wording}.",
        document_ids=tuple(sorted({name for fact in facts for name in fact.document_ids})),
        search_terms=f"{winner.name} {attribute}",
        depends_on=(facts[0].id, facts[1].id),
    )


def stated_convention(ground: Ground, entity: Entity, *, number: int) -> ImplicitNeed:
    """The duty to state the aspect of the entity."""
    aspect = domain_named(entity.domain).convention.aspect
    return ImplicitNeed(
        id=f"c{number}",
        kind="stated",
        title=f"{aspect} of {entity.name}",
        aspect=aspect,
        subject_id=entity.id,
        value=entity.aspect_value,
        sentence=sentence(aspect, entity.name, entity.aspect_value),
        document_ids=ground.library.holding(entity.id, aspect, entity.aspect_value),
        search_terms=f"{entity.name} {aspect}",
        convention_ids=ground.library.holding(entity.domain, CONVENTION, aspect),
        convention_search_terms=f"reporting convention {entity.domain}",
    )


def closing_convention(ground: Ground, domain_name: str, *, number: int) -> ImplicitNeed:
    """The duty to end a long answer with the words of the domain."""
    closing = domain_named(domain_name).convention.closing
    documents = ground.library.holding(domain_name, CONVENTION, closing)
    return ImplicitNeed(
        id=f"c{number}",
        kind="closing",
        title=f"closing words for {domain_name}",
        aspect="closing",
        subject_id=domain_name,
        value=closing,
        sentence=f"All figures are {closing}.",
        document_ids=documents,
        search_terms=f"reporting convention {domain_name}",
        convention_ids=documents,
        convention_search_terms=f"reporting convention {domain_name}",
    )


def traps_for(ground: Ground, needs: tuple[Need, ...]) -> tuple[Trap, ...]:
    """Every wrong value that a document offers for a need, of the entity itself or of one that looks like it."""
    right = {need.value for need in needs}
    offers: dict[tuple[str, TrapKind, str], tuple[str, ...]] = {}
    asked = {need.id: need for need in needs if need.kind in ("fact", "link")}
    for need in asked.values():
        lookalikes = ground.entities[need.subject_id].lookalike_ids
        for subject in (need.subject_id, *lookalikes):
            for source in ground.library.sources(subject, need.attribute):
                if source.value in right:
                    continue
                key = (need.id, _trap_kind(source.kind, subject in lookalikes), source.value)
                offers[key] = (*offers.get(key, ()), source.document_id)
    return tuple(
        Trap(kind=kind, need_id=need_id, right_value=asked[need_id].value, wrong_value=wrong, document_ids=documents)
        for (need_id, kind, wrong), documents in offers.items()
    )


def _trap_kind(document: DocumentKind, of_lookalike: bool) -> TrapKind:
    if document == "hostile":
        return "hostile"
    if of_lookalike:
        return "lookalike"
    return "stale" if document == "stale" else "rival"
