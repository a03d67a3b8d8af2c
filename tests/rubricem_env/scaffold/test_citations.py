"""Which snippets an answer cites, and which of them a tool has shown."""

import pytest
from hypothesis import given, strategies as st

from rubricem_env.domain.trajectory import Observation, Origin, Segment, ToolStatus
from rubricem_env.scaffold.parsed import find_any_citations, find_citations, resolve_citations, shown_snippets

PARTS = (
    '<cite id="S_1, S_2">a</cite>',
    '<cite id="">b</cite>',
    "<cite id='S_3'>b</cite>",
    "<cite>",
    "</cite>",
    " c ",
    "<",
)


def tool(text: str, ids: tuple[str, ...] | None = None) -> Segment:
    record = None if ids is None else Observation(status=ToolStatus.OK, snippet_ids=ids)
    return Segment(origin=Origin.TOOL, text=text, observation=record)


@pytest.mark.parametrize(
    ("written", "ids"),
    [
        ('<cite id="S_1">c</cite>', ("S_1",)),
        ("<cite id='S_1'>c</cite>", ("S_1",)),
        ("<cite id=S_1>c</cite>", ("S_1",)),
        ("<CITE ID=S_1>c</CITE>", ("S_1",)),
        ('<cite id="S_1, S_2">c</cite>', ("S_1", "S_2")),
        ('<cite id="S_1;S_2 S_3">c</cite>', ("S_1", "S_2", "S_3")),
        ("<cite id=S_1,S_2>c</cite>", ("S_1", "S_2")),
        ("<cite id=S_1, S_2>c</cite>", ("S_1", "S_2")),
        ("<cite id=S_1 ,S_2, S_3>c</cite>", ("S_1", "S_2", "S_3")),
        ('<cite ids="S_1">c</cite>', ("S_1",)),
        ('<cite id="S_1>c</cite>', ("S_1",)),
        ("<cite>c</cite>", ()),
        ('<cite id="">c</cite>', ()),
        ('<cite id=" , ">c</cite>', ()),
    ],
)
def test_ids_are_read_in_any_quoting(written, ids):
    (citation,) = find_citations(written)
    assert (citation.ids, citation.claim) == (ids, "c")


def test_a_citation_that_is_never_closed_reaches_to_the_next_one():
    text = 'a <cite id="S_1">one <cite id="S_2">two</cite> end'
    assert [citation.claim for citation in find_citations(text)] == ["one ", "two"]


def test_citations_without_an_id_or_a_claim_are_empty_and_ids_are_listed_once():
    found = resolve_citations(
        '<cite id="X">a</cite><cite id="S_1"/><cite id="S_1"> </cite><cite>c</cite><cite id="X">b</cite>', {"S_1"}
    )
    assert (found.known, found.unknown) == (("S_1",), ("X",))
    assert [citation.written for citation in found.empty] == ['<cite id="S_1"/>', '<cite id="S_1">', "<cite>"]


def test_a_snippet_is_shown_where_both_the_episodes_record_and_the_text_have_it():
    text = '<snippet id="S_1">a</snippet><snippet id="S_9">b</snippet>'
    assert shown_snippets([tool(text, ids=("S_1", "S_2"))]) == {"S_1"}
    # The record names them in another order than the text shows them.
    assert shown_snippets([tool(text, ids=("S_9", "S_1"))]) == {"S_1", "S_9"}


def test_a_snippet_inside_a_snippet_is_page_text():
    text = '<snippet id="S_1">a <snippet id="S_9">b</snippet> c</snippet><snippet id="S_2"/><snippet>x</snippet>'
    assert shown_snippets([tool(text)]) == {"S_1", "S_2"}


def test_a_snippet_that_a_page_opens_after_closing_its_own_is_not_told_apart_in_bare_text():
    # A bare file records no ids and its writer did not defuse the page: this much must be believed.
    assert shown_snippets([tool('<snippet id="S_1">a</snippet><snippet id="S_9">b</snippet></snippet>')]) == {
        "S_1",
        "S_9",
    }


def test_policy_and_prompt_text_show_nothing():
    text = '<snippet id="S_1">mine</snippet>'
    assert shown_snippets([Segment(origin=origin, text=text) for origin in (Origin.POLICY, Origin.PROMPT)]) == set()


@given(st.lists(st.sampled_from(PARTS), max_size=6).map("".join))
def test_the_short_way_through_an_answer_finds_what_the_long_way_finds(answer):
    assert list(find_citations(answer)) == list(find_any_citations(answer))
