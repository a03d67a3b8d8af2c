"""The questions: supported by documents, trapped by wrong values, and silent about their truth."""

from collections import Counter

import pytest
from hypothesis import given, settings, strategies as st

from rubricem_env.domain.errors import UsageError
from rubricem_env.world.almanac import Almanac
from rubricem_env.world.needs import mentions
from rubricem_env.world.questions import Question
from rubricem_env.world.vocabulary import domain_named

pytestmark = pytest.mark.no_cover

WORLD = Almanac.from_seed(0)
WORLDS = st.builds(
    Almanac.from_seed, st.integers(0, 2**63), entities_per_domain=st.integers(9, 20), hostile=st.booleans()
)


def _first(kind: str) -> Question:
    return next(question for question in WORLD.questions if question.truth.kind == kind)


@settings(max_examples=10)
@given(WORLDS)
def test_every_need_is_supported_by_documents_that_contain_its_value(world: Almanac) -> None:
    texts = {document.id: f"{document.title} {document.text}" for document in world.documents}
    for question in world.questions:
        for need in question.truth.needs:
            holders = [mentions(texts[name], need.value) for name in need.document_ids]
            assert any(holders)
            assert all(holders) or need.kind == "verdict"


@settings(max_examples=10)
@given(WORLDS)
def test_every_convention_is_supported_by_documents_that_contain_its_value_and_its_duty(world: Almanac) -> None:
    texts = {document.id: f"{document.title} {document.text}" for document in world.documents}
    for need in (need for question in world.questions for need in question.truth.implicit_needs):
        duty = need.value if need.kind == "closing" else need.aspect
        assert need.document_ids
        assert all(mentions(texts[name], need.value) for name in need.document_ids)
        assert need.convention_ids
        assert all(mentions(texts[name], duty) for name in need.convention_ids)


@settings(max_examples=10)
@given(WORLDS)
def test_every_trap_offers_a_wrong_value_that_its_documents_contain(world: Almanac) -> None:
    texts = {document.id: f"{document.title} {document.text}" for document in world.documents}
    for question in world.questions:
        right = {need.value for need in question.truth.needs}
        for trap in question.truth.traps:
            assert trap.wrong_value not in right
            assert all(mentions(texts[name], trap.wrong_value) for name in trap.document_ids)


@settings(max_examples=10)
@given(WORLDS)
def test_a_question_names_no_value_and_no_convention(world: Almanac) -> None:
    for question in world.questions:
        domain = domain_named(question.domain)
        hidden = [need.value for need in question.truth.needs if need.kind != "verdict"]
        hidden += [trap.wrong_value for trap in question.truth.traps]
        hidden += [domain.aspect, domain.closing, question.split]
        assert not [phrase for phrase in hidden if mentions(question.question, phrase)]


@settings(max_examples=10)
@given(WORLDS)
def test_the_reference_answer_meets_every_need_and_falls_into_no_trap(world: Almanac) -> None:
    for question in world.questions:
        truth = question.truth
        needs = truth.needs[-1:] if question.answer_format == "exact" else truth.needs
        assert all(need.is_met_by(truth.reference) for need in needs)
        assert all(need.is_met_by(truth.reference) for need in truth.implicit_needs)
        assert not [trap for trap in truth.traps if trap.has_caught(truth.reference)]


@settings(max_examples=10)
@given(WORLDS)
def test_splits_share_no_entity_in_any_world(world: Almanac) -> None:
    splits = {entity.id: entity.split for entity in world.entities}
    assert all(splits[name] == q.split for q in world.questions for name in q.truth.entity_ids)
    assert max(Counter(question.question for question in world.questions).values()) == 1


def test_all_eight_kinds_of_question_are_asked() -> None:
    kinds = {(q.answer_format, q.truth.kind, len(q.truth.needs)) for q in WORLD.questions}
    assert kinds == {
        ("exact", "fact", 1),
        ("exact", "chain", 2),
        ("exact", "chain", 3),
        ("short", "pair", 2),
        ("short", "triple", 3),
        ("long", "comparison", 3),
        ("long", "change", 3),
        ("long", "profile", 4),
    }


def test_a_step_of_a_chain_depends_on_the_step_before_it() -> None:
    chain = next(q for q in WORLD.questions if q.truth.kind == "chain" and len(q.truth.needs) == 3)
    assert [need.depends_on for need in chain.truth.needs] == [(), ("n1",), ("n2",)]
    assert [need.kind for need in chain.truth.needs] == ["link", "link", "fact"]


def test_a_comparison_is_met_by_the_verdict_and_not_by_the_bare_name() -> None:
    verdict = _first("comparison").truth.needs[2]
    assert not verdict.is_met_by(verdict.value)
    assert verdict.is_met_by(f"Thus {verdict.sentence}")


def test_the_winner_of_a_comparison_has_the_greater_number() -> None:
    left, right, verdict = _first("comparison").truth.needs
    greater = max((left, right), key=lambda need: int(need.value.split()[0]))
    assert verdict.subject_id == greater.subject_id


def test_a_change_asks_for_both_editions_so_the_stale_value_is_no_trap() -> None:
    for question in (q for q in WORLD.questions if q.truth.kind == "change"):
        assert [need.kind for need in question.truth.needs] == ["fact", "fact", "cause"]
        assert "stale" not in {trap.kind for trap in question.truth.traps}


def test_conventions_bind_long_answers_twice_short_answers_once_and_exact_answers_never() -> None:
    counts = {q.truth.kind: [need.kind for need in q.truth.implicit_needs] for q in WORLD.questions}
    assert counts["fact"] == counts["chain"] == []
    assert counts["pair"] == ["stated"]
    assert counts["profile"] == ["stated", "closing"]
    assert counts["comparison"] == ["stated", "stated", "closing"]


def test_a_stated_convention_wants_the_aspect_beside_its_value() -> None:
    need = _first("pair").truth.implicit_needs[0]
    assert need.is_met_by(need.sentence)
    assert not need.is_met_by(need.value)


def test_a_rubric_stands_for_each_need_each_convention_and_each_trap() -> None:
    question = next(q for q in WORLD.questions if q.truth.kind == "pair" and len(q.truth.traps) == 1)
    assert [rubric.weight for rubric in question.rubrics] == [1.0, 1.0, 0.5, -1.0]


def test_every_kind_of_trap_is_set_somewhere() -> None:
    assert {trap.kind for q in WORLD.questions for trap in q.truth.traps} == {"stale", "rival", "lookalike"}


def test_more_questions_than_the_entities_can_fill_are_refused_with_the_format_that_ran_out() -> None:
    with pytest.raises(UsageError, match=r"rivers have no \w+ question left after \d+ of \d+; each question is asked"):
        Almanac.from_seed(0, questions_per_domain=900)


@pytest.mark.parametrize(
    ("texts", "is_mentioned"),
    [
        (("120 km", "1,20 km", "1.20 km", "20 kms", "20", "km 20"), False),
        (("20 km", "It is 20 KM.", "(20  km)", "is\n20\nkm, now"), True),
    ],
)
def test_a_phrase_is_mentioned_as_whole_words_in_any_case_and_spacing(
    texts: tuple[str, ...], is_mentioned: bool
) -> None:
    assert [mentions(text, "20 km") for text in texts] == [is_mentioned] * len(texts)
