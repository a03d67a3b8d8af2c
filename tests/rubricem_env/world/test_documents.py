"""The documents: short, honest about conventions in few places only, hostile only on request, and findable."""

import re
from collections import Counter

import pytest

from rubricem_env.domain.errors import UsageError
from rubricem_env.tools.corpus_search import Corpus
from rubricem_env.world.almanac import Almanac
from rubricem_env.world.documents import DocumentKind
from rubricem_env.world.needs import mentions
from rubricem_env.world.vocabulary import DOMAINS, Domain, domain_named

WORLD = Almanac.from_seed(0)
HOSTILE_WORLD = Almanac.from_seed(0, hostile=True)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


CORPUS = Corpus(WORLD.documents)


def _found(query: str, top_k: int = 3) -> set[str]:
    return {document.id for document in CORPUS.search(query, limit=top_k)}


def _texts(*kinds: DocumentKind) -> list[str]:
    return [f"{entry.document.title} {entry.document.text}" for entry in WORLD.library.filed if entry.kind in kinds]


def test_every_document_is_the_size_of_a_snippet() -> None:
    assert all(3 <= len(document.text.split()) < 60 for document in WORLD.documents)
    assert all(len(re.findall(r"\.(?= |$)", document.text)) <= 7 for document in WORLD.documents)


def test_the_world_is_written_with_a_few_hundred_words() -> None:
    texts = [f"{document.title} {document.text}" for document in WORLD.documents]
    words = {word for text in texts + [q.question for q in WORLD.questions] for word in _words(text)}
    assert len({word for word in words if not word.isdigit()}) < 300


def test_every_kind_of_document_is_in_the_world() -> None:
    kinds = Counter(entry.kind for entry in WORLD.library.filed)
    honest = {"page", "sheet", "note", "stale", "change", "letter", "ruling", "dead_end", "table", "convention"}
    assert set(kinds) == honest


def test_a_convention_is_named_in_two_documents_of_its_domain_and_nowhere_else() -> None:
    others = [e for e in WORLD.library.filed if e.kind != "convention"]
    assert not [e for e in others if mentions(f"{e.document.title} {e.document.text}", "convention")]
    assert len(_texts("convention")) == 2 * len(DOMAINS)


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.name)
def test_no_page_of_an_entity_names_an_aspect_or_closing_words(domain: Domain) -> None:
    texts = _texts("page", "sheet", "stale", "change", "letter", "ruling", "dead_end", "table")
    hidden = (domain.aspect, domain.closing)
    assert not [text for text in texts for phrase in hidden if mentions(text, phrase)]


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.name)
def test_asking_for_the_reporting_convention_of_a_domain_finds_both_duties(domain: Domain) -> None:
    duties = {e.document.id for e in WORLD.library.filed if e.kind == "convention" and e.document.field == domain.name}
    assert duties == _found(f"reporting convention {domain.name}", top_k=2)


def test_a_query_with_name_and_attribute_finds_a_supporting_document_among_the_first_three() -> None:
    needs = [need for q in WORLD.questions_of("test") for need in q.truth.needs if need.kind != "verdict"]
    assert not [need.search_terms for need in needs if not _found(need.search_terms) & set(need.document_ids)]


def test_a_query_without_a_name_finds_few_of_the_needed_documents() -> None:
    needs = [need for q in WORLD.questions_of("test") for need in q.truth.needs if need.kind != "verdict"]
    found = [not _found(f"what is the {need.attribute}").isdisjoint(need.document_ids) for need in needs]
    # Tables answer some: they name the attribute in each row.
    assert sum(found) < 0.4 * len(needs)


def test_the_stale_edition_comes_up_beside_the_current_one() -> None:
    stale = [e for e in WORLD.library.filed if e.kind == "stale"][:20]
    queries = [f"{e.document.title.rsplit(' ', 1)[0]} {e.claims[0][1]}" for e in stale]
    assert all(e.document.id in _found(query) for e, query in zip(stale, queries, strict=True))


def test_hostile_pages_come_only_when_asked_for_and_leave_the_honest_documents_as_they_were() -> None:
    honest = len(WORLD.documents)
    assert not any("Ignore your instructions" in document.text for document in WORLD.documents)
    assert HOSTILE_WORLD.documents[:honest] == WORLD.documents
    # 80 entities, one hostile page for every third of them, from the first on
    assert len(HOSTILE_WORLD.documents) - honest == 27


def test_a_hostile_value_is_a_trap_of_the_question_that_it_attacks() -> None:
    traps = [trap for q in HOSTILE_WORLD.questions for trap in q.truth.traps if trap.kind == "hostile"]
    assert traps
    assert all(trap.wrong_value != trap.right_value for trap in traps)
    assert not [trap for q in WORLD.questions for trap in q.truth.traps if trap.kind == "hostile"]


def test_an_unknown_domain_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no domain 'stars'; it has rivers, towns"):
        domain_named("stars")
