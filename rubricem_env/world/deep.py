"""A deeper almanac: chains of six to ten hops whose every link takes two searches, among entities that look alike.

A page names what its entity is linked to by a number alone, and a register has the name of each number. So a chain of
six hops takes eleven searches. Seeded, in memory, with known truth:

    world = deep_almanac(0)
"""

from collections.abc import Iterator, Mapping, Sequence

from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_env.world.almanac import Almanac
from rubricem_env.world.documents import Claim, Draft, Library, entity_drafts
from rubricem_env.world.draws import open_stream, pick, shuffled
from rubricem_env.world.entities import Entity, populate
from rubricem_env.world.names import SPLITS
from rubricem_env.world.needs import Need, Truth, fact_need
from rubricem_env.world.questions import Question, rubrics_of
from rubricem_env.world.vocabulary import DOMAINS, domain_named

DEEP_HOPS = range(6, 11)
"""The hops of a chain: the links, and the number at the end."""
DEEP_ENTITIES = 40
DEEP_QUESTIONS = 40
MOST_ENTITIES = 112
"""A domain: the numbers of the register have three digits, so that many of them look alike."""
_ROUND = "towns"
"""The domain whose links go one further: so a chain comes back to an entity only after all of them."""


def deep_almanac(
    seed: int, *, entities_per_domain: int = DEEP_ENTITIES, questions_per_domain: int = DEEP_QUESTIONS
) -> Almanac:
    """The same world for the same arguments, on every machine.

    Raises:
        UsageError: there are too few entities for three splits, or too many for three digits.
    """
    if entities_per_domain > MOST_ENTITIES:
        raise UsageError(
            f"entities_per_domain is {entities_per_domain}; the numbers of a deep almanac last for {MOST_ENTITIES}. "
            "Use that, or more seeds."
        )
    entities = _linked(populate(seed, entities_per_domain))
    rng = open_stream(seed, "deep")
    numbers = dict(zip((entity.id for entity in entities), shuffled(rng, list(range(100, 1_000))), strict=False))
    drafts = shuffled(rng, [draft for entity in entities for draft in _drafts(entity, numbers)])
    library = Library(drafts, entities)
    questions: list[Question] = []
    for split in SPLITS:
        for domain in DOMAINS:
            asked = [entity for entity in entities if (entity.split, entity.domain) == (split, domain.name)]
            pool = shuffled(rng, [(entity, hops) for entity in asked for hops in DEEP_HOPS])
            share = max(1, questions_per_domain * len(asked) // entities_per_domain)
            questions += [
                _ask(library, numbers, entity, hops=hops, attribute=pick(rng, range(3)), number=number)
                for number, (entity, hops) in enumerate(pool[:share], start=1)
            ]
    return Almanac(entities, library, tuple(questions))


def _linked(entities: Sequence[Entity]) -> tuple[Entity, ...]:
    """The entities, with links that lead far: the first of a domain to the first of the next, and so on."""
    cohorts: dict[tuple[str, str], list[Entity]] = {}
    for entity in entities:
        cohorts.setdefault((entity.domain, entity.split), []).append(entity)
    linked = []
    for (name, split), cohort in cohorts.items():
        targets = cohorts[domain_named(name).target, split]
        for place, entity in enumerate(cohort):
            target = targets[(place + (name == _ROUND)) % len(targets)]
            linked.append(entity.model_copy(update={"related_id": target.id, "related_name": target.name}))
    return tuple(linked)


def _numbered(number: int) -> str:
    return f"No {number}"


def _drafts(entity: Entity, numbers: Mapping[str, int]) -> Iterator[Draft]:
    """The documents of an entity, with a number for a link, and the entry of its own number in the register."""
    yield from entity_drafts(entity.model_copy(update={"related_name": _numbered(numbers[entity.related_id])}))
    own = _numbered(numbers[entity.id])
    claim = Claim(entity.id, "name", entity.name)
    yield Draft("table", f"{own} register", f"{own} has name {entity.name}.", entity.year, entity.domain, (claim,))


def _ask(
    library: Library, numbers: Mapping[str, int], entity: Entity, *, hops: int, attribute: int, number: int
) -> Question:
    """One number of what the entity is linked to, through so many others."""
    needs: list[Need] = []
    phrase = f"the {domain_named(entity.domain).singular} {entity.name}"
    last = entity
    for _ in range(hops - 1):
        link = domain_named(last.domain).link
        needs.append(_link_need(library, last, numbers, number=len(needs) + 1))
        last = library.entities[last.related_id]
        needs.append(_name_need(library, last, numbers, number=len(needs) + 1))
        phrase = f"the {link} of {phrase}"
    goal = domain_named(last.domain).attributes[attribute].name
    needs.append(fact_need(library, last, goal, number=len(needs) + 1, chained=True))
    truth = Truth(
        kind="deep chain",
        entity_ids=tuple(dict.fromkeys((entity.id, *(need.subject_id for need in needs)))),
        needs=tuple(needs),
        implicit_needs=(),
        # No trap, so that the score of an answer is 1 where it is right and 0 elsewhere.
        traps=(),
        reference=needs[-1].value,
    )
    return Question(
        id=f"{entity.split}-{entity.domain}-{number:02d}",
        question=f"What is the {goal} of {phrase}?",
        answer_format=AnswerFormat.EXACT,
        domain=entity.domain,
        split=entity.split,
        truth=truth,
        rubrics=rubrics_of(truth.model_copy(update={"needs": truth.needs[-1:]})),
    )


def _link_need(library: Library, entity: Entity, numbers: Mapping[str, int], *, number: int) -> Need:
    """The number of what the entity is linked to."""
    of = entity.model_copy(update={"related_name": _numbered(numbers[entity.related_id])})
    return fact_need(library, of, domain_named(entity.domain).link, number=number, chained=number > 1)


def _name_need(library: Library, entity: Entity, numbers: Mapping[str, int], *, number: int) -> Need:
    """The name of the entity that has a number."""
    own = _numbered(numbers[entity.id])
    return Need(
        id=f"n{number}",
        kind="link",
        title=f"name of {own}",
        subject_id=entity.id,
        attribute="name",
        value=entity.name,
        wording=entity.name,
        sentence=f"{own} has name {entity.name}.",
        document_ids=library.documents_with(entity.id, "name", entity.name),
        search_terms=f"{own} name",
        depends_on=(f"n{number - 1}",),
    )
