"""Questions with their truth: needs, unspoken needs (conventions) and traps, and how a world's questions are chosen."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_env.world.documents import CONVENTION, DocumentKind, Library, sentence
from rubricem_env.world.entities import (
    DOMAINS,
    SPLITS,
    Entity,
    Fact,
    Flaw,
    Split,
    domain_named,
    open_stream,
    shuffled,
    split_sizes,
)

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
    need = _need(library, entity, (attribute, entity.value_of(attribute)), kind=kind, number=number)
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
    wrong, change = (flaw.attribute, flaw.wrong_value), (f"{flaw.attribute} change", flaw.cause)
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
    asked = {need.id: need for need in needs if need.kind in ("fact", "link")}
    for need in asked.values():
        lookalikes = library.entities[need.subject_id].lookalike_ids
        for subject in (need.subject_id, *lookalikes):
            for value, kind, document in library.sources(subject, need.attribute):
                if value not in right:
                    key = (need.id, _trap_kind(kind, subject in lookalikes), value)
                    offers[key] = (*offers.get(key, ()), document)
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
        phrase, last = f"the {_titled(entity)}", entity
        for number in range(1, hops):
            link = domain_named(last.domain).link
            links.append(fact_need(library, last, link, number=number, chained=number > 1))
            phrase, last = f"the {link} of {phrase}", library.entities[last.related_id]
        for attribute in domain_named(last.domain).attributes:
            goal = fact_need(library, last, attribute.name, number=hops, chained=hops > 1)
            text = f"What is the {attribute.name} of {phrase}?"
            yield Inquiry("fact" if hops == 1 else "chain", text, (entity,), (*links, goal))


def _ask_statements(library: Library, entities: Sequence[Entity], *, with_link: bool) -> Iterator[Inquiry]:
    """Two numbers of one entity (a pair), or two and its link (a triple)."""
    for entity in entities:
        link = domain_named(entity.domain).link
        for first, second in combinations([attribute for attribute, _ in entity.facts], 2):
            listed = f"{first}, the {second} and the {link}" if with_link else f"{first} and the {second}"
            kind, names = ("triple", (first, second, link)) if with_link else ("pair", (first, second))
            yield _listing(
                library, kind, f"State the {listed} of the {_titled(entity)}.", entity=entity, attributes=names
            )


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


FORMATS = tuple(AnswerFormat)
"""The formats in the order in which they take turns."""


class PersistentRubric(Frozen):
    """A criterion of the answer stage that holds for the whole training; a negative weight marks a fault."""

    title: str
    description: str
    weight: float


class Question(Frozen):
    """What is asked and, apart from it, what is true. Only ``question`` may reach a policy."""

    id: str
    question: str
    answer_format: AnswerFormat
    domain: str
    split: Split
    truth: Truth
    rubrics: tuple[PersistentRubric, ...]


def rubrics_of(truth: Truth) -> tuple[PersistentRubric, ...]:
    """The answer rubrics of a truth: +1 for each need, +0.5 for each convention, -1 for each trap."""
    rows = [(need.title, f"The answer says: {need.sentence}", 1.0) for need in truth.needs]
    rows += [(duty.title, f"The answer says: {duty.sentence}", 0.5) for duty in truth.implicit_needs]
    rows += [(f"{t.kind} value", f"The answer gives the wrong value {t.wrong_value}.", -1.0) for t in truth.traps]
    return tuple(PersistentRubric(title=title, description=text, weight=weight) for title, text, weight in rows)


def ask_questions(seed: int, library: Library, *, questions_per_domain: int) -> tuple[Question, ...]:
    """The questions of every split and domain, a third of each format; no two have the same words.

    Refuses a number that the entities cannot fill.
    """
    sizes = split_sizes(questions_per_domain, "questions_per_domain")
    rng = open_stream(seed, "questions")
    questions: list[Question] = []
    for split in SPLITS:
        for turn, domain in enumerate(DOMAINS):
            cohort = [e for e in library.entities.values() if e.domain == domain.name and e.split == split]
            chosen = _choose(rng, library, cohort, count=sizes[split], turn=turn)
            questions += [
                _question(library, inquiry, answer_format, number=number)
                for number, (answer_format, inquiry) in enumerate(chosen, start=1)
            ]
    return tuple(questions)


def _choose(
    rng: np.random.Generator, library: Library, cohort: Sequence[Entity], *, count: int, turn: int
) -> list[tuple[AnswerFormat, Inquiry]]:
    """Formats in turn and, within a format, kinds in turn; an empty kind is skipped."""
    pools = {name: [shuffled(rng, make(library, cohort)) for make in makers] for name, makers in MAKERS.items()}
    chosen: list[tuple[AnswerFormat, Inquiry]] = []
    for number in range(count):
        answer_format = FORMATS[number % len(FORMATS)]
        kinds = pools[answer_format]
        start = number // len(FORMATS) + turn
        pool = next((p for p in (kinds[(start + step) % len(kinds)] for step in range(len(kinds))) if p), None)
        if pool is None:
            raise UsageError(
                f"{cohort[0].split} {cohort[0].domain} have no {answer_format} question left after {number} of "
                f"{count}; each question is asked once. Use more entities_per_domain or fewer questions_per_domain."
            )
        chosen.append((answer_format, pool.pop()))
    return chosen


def _question(library: Library, inquiry: Inquiry, answer_format: AnswerFormat, *, number: int) -> Question:
    entity = inquiry.named[0]
    truth = _truth(library, inquiry, answer_format)
    return Question(
        id=f"{entity.split}-{entity.domain}-{number:02d}",
        question=inquiry.text,
        answer_format=answer_format,
        domain=entity.domain,
        split=entity.split,
        truth=truth,
        rubrics=rubrics_of(truth),
    )


def _truth(library: Library, inquiry: Inquiry, answer_format: AnswerFormat) -> Truth:
    """Conventions apply to short and long answers, the closing words to long ones only."""
    implicit: list[ImplicitNeed] = []
    if answer_format is not AnswerFormat.EXACT:
        implicit += [stated_convention(library, entity, number=n) for n, entity in enumerate(inquiry.named, start=1)]
    if answer_format is AnswerFormat.LONG:
        implicit.append(closing_convention(library, inquiry.named[0].domain, number=len(implicit) + 1))
    sentences = [need.sentence for need in inquiry.needs] + [need.sentence for need in implicit]
    subjects = [entity.id for entity in inquiry.named] + [need.subject_id for need in inquiry.needs]
    return Truth(
        kind=inquiry.kind,
        entity_ids=tuple(dict.fromkeys(subjects)),
        needs=inquiry.needs,
        implicit_needs=tuple(implicit),
        traps=traps_for(library, inquiry.needs),
        reference=inquiry.needs[-1].value if answer_format is AnswerFormat.EXACT else " ".join(sentences),
    )
