"""The truth of a question: its needs, unspoken needs (conventions) and traps."""

import re
from typing import Literal

from rubricem_env.domain.base import Frozen
from rubricem_env.world.documents import CONVENTION, DocumentKind, Library, sentence
from rubricem_env.world.entities import Entity, Fact, Flaw
from rubricem_env.world.vocabulary import domain_named

NeedKind = Literal["fact", "link", "cause", "verdict"]
TrapKind = Literal["stale", "rival", "lookalike", "hostile"]


def mentions(text: str, phrase: str) -> bool:
    """Whether the text contains the phrase as whole words, in any case and spacing.

    "20 km" is not mentioned in "120 km", "1,20 km" or "20 kms".
    """
    words = r"\s+".join(re.escape(word) for word in phrase.split())
    return re.search(rf"(?<!\w)(?<!\d[.,]){words}(?!\w)", text, re.IGNORECASE) is not None


class Need(Frozen):
    """One thing that the question asks for, directly or as a step of a chain.

    ``kind``: fact is a number, link the name of a related entity, cause why a value changed, verdict what follows
    from earlier needs. Any of ``document_ids`` supports it and contains ``value``. ``wording`` is the least that an
    answer must contain: the value, or the conclusion in words for a verdict. ``depends_on`` holds the
    ids of the needs that must be known before this one can be searched for or concluded.
    """

    id: str
    kind: NeedKind
    title: str
    subject_id: str
    attribute: str
    value: str
    wording: str
    sentence: str
    document_ids: tuple[str, ...]
    search_terms: str
    depends_on: tuple[str, ...] = ()

    def is_met_by(self, text: str) -> bool:
        """Whether the text contains the wording that satisfies the need."""
        return mentions(text, self.wording)


class ImplicitNeed(Frozen):
    """A convention of the domain, which the question does not name.

    ``kind``: stated wants the aspect and its value for one entity (held by ``document_ids``); closing wants the
    fixed words of the domain, which only the convention documents hold. ``convention_ids`` name the duty and are
    found by ``convention_search_terms``.
    """

    id: str
    kind: Literal["stated", "closing"]
    title: str
    aspect: str
    subject_id: str
    value: str
    sentence: str
    document_ids: tuple[str, ...]
    search_terms: str
    convention_ids: tuple[str, ...]
    convention_search_terms: str

    def is_met_by(self, text: str) -> bool:
        """Whether the text contains the value and, where the value is that of an aspect, names the aspect."""
        return mentions(text, self.value) and (self.kind == "closing" or mentions(text, self.aspect))


class Trap(Frozen):
    """A wrong value that the documents ``document_ids`` offer for a need; it is the right value of no need."""

    kind: TrapKind
    need_id: str
    right_value: str
    wrong_value: str
    document_ids: tuple[str, ...]

    def has_caught(self, text: str) -> bool:
        """Whether the text repeats the wrong value."""
        return mentions(text, self.wrong_value)


class Truth(Frozen):
    """What a judge of the question may know and a policy may not.

    ``entity_ids`` are the subjects of the needs, those that the question names first. ``reference`` is a perfect
    answer: the bare value for an exact question, else one sentence for each need.
    """

    kind: str
    entity_ids: tuple[str, ...]
    needs: tuple[Need, ...]
    implicit_needs: tuple[ImplicitNeed, ...]
    traps: tuple[Trap, ...]
    reference: str


def fact_need(library: Library, entity: Entity, attribute: str, *, number: int, chained: bool = False) -> Need:
    """The true value of the attribute; a chained need depends on the need before it."""
    kind: NeedKind = "link" if attribute == domain_named(entity.domain).link else "fact"
    fact = Fact(attribute, entity.value_of(attribute))
    need = _need(library, entity, fact, kind=kind, number=number)
    return need.model_copy(update={"depends_on": (f"n{number - 1}",)}) if chained else need


def _need(library: Library, entity: Entity, fact: Fact, *, kind: NeedKind, number: int, name: str = "") -> Need:
    """The need for what documents claim of the entity; `name` is what the question calls the attribute."""
    attribute, value = fact
    return Need(
        id=f"n{number}",
        kind=kind,
        title=f"{name or attribute} of {entity.name}",
        subject_id=entity.id,
        attribute=attribute,
        value=value,
        wording=value,
        sentence=sentence(name or attribute, entity.name, value),
        document_ids=library.documents_with(entity.id, attribute, value),
        search_terms=f"{entity.name} {attribute}",
    )


def change_needs(library: Library, entity: Entity, flaw: Flaw) -> tuple[Need, ...]:
    """The old value, the new value and the cause."""
    wrong = Fact(flaw.attribute, flaw.wrong_value)
    change = Fact(f"{flaw.attribute} change", flaw.cause)
    old = _need(library, entity, wrong, kind="fact", number=1, name=f"old {flaw.attribute}")
    cause = _need(library, entity, change, kind="cause", number=3, name=f"cause of the change of the {flaw.attribute}")
    said = f"A {flaw.cause} changed the {flaw.attribute} of {entity.name}."
    return old, fact_need(library, entity, flaw.attribute, number=2), cause.model_copy(update={"sentence": said})


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


def stated_convention(library: Library, entity: Entity, *, number: int) -> ImplicitNeed:
    """The duty to state the aspect of the entity."""
    aspect = domain_named(entity.domain).aspect
    return ImplicitNeed(
        id=f"c{number}",
        kind="stated",
        title=f"{aspect} of {entity.name}",
        aspect=aspect,
        subject_id=entity.id,
        value=entity.aspect_value,
        sentence=sentence(aspect, entity.name, entity.aspect_value),
        document_ids=library.documents_with(entity.id, aspect, entity.aspect_value),
        search_terms=f"{entity.name} {aspect}",
        convention_ids=library.documents_with(entity.domain, CONVENTION, aspect),
        convention_search_terms=f"reporting convention {entity.domain}",
    )


def closing_convention(library: Library, domain_name: str, *, number: int) -> ImplicitNeed:
    """The duty to end a long answer with the words of the domain."""
    closing = domain_named(domain_name).closing
    documents = library.documents_with(domain_name, CONVENTION, closing)
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


def traps_for(library: Library, needs: tuple[Need, ...]) -> tuple[Trap, ...]:
    """Every wrong value that a document offers for a need, of the entity itself or of one that looks like it."""
    right = {need.value for need in needs}
    offers: dict[tuple[str, TrapKind, str], tuple[str, ...]] = {}
    askable = {need.id: need for need in needs if need.kind in ("fact", "link")}
    for need in askable.values():
        lookalikes = library.entities[need.subject_id].lookalike_ids
        for subject in (need.subject_id, *lookalikes):
            for value, kind, document in library.sources(subject, need.attribute):
                if value not in right:
                    key = (need.id, _trap_kind(kind, subject in lookalikes), value)
                    offers[key] = (*offers.get(key, ()), document)
    return tuple(
        Trap(kind=kind, need_id=need_id, right_value=askable[need_id].value, wrong_value=wrong, document_ids=documents)
        for (need_id, kind, wrong), documents in offers.items()
    )


def _trap_kind(document: DocumentKind, of_lookalike: bool) -> TrapKind:
    if document == "hostile":
        return "hostile"
    if of_lookalike:
        return "lookalike"
    return "stale" if document == "stale" else "rival"
