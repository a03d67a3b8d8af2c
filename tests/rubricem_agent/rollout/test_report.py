"""A rollout for people: sources with titles and addresses, and why there is no answer."""

import pytest

from rubricem_agent.rollout.report import explain_ending, linked_answer, render_report
from rubricem_env.domain.trajectory import (
    Ending,
    Observation,
    Origin,
    Segment,
    Snippet,
    Source,
    ToolResult,
    ToolStatus,
    Trajectory,
)
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_env.tools.render import render_observation
from rubricem_records.rollouts.snippet_sources import SnippetSource, shown_sources, sources_of


def shown(*snippets, origin=Origin.TOOL):
    """The segment that an episode makes of a search's snippets."""
    text, ids = render_observation(ToolResult(status=ToolStatus.OK, snippets=snippets), first_id=1)
    record = Observation(status=ToolStatus.OK, snippet_ids=ids, sources=tuple(map(Source.of, snippets)))
    return Segment(origin=origin, text=text, observation=record)


def parsed(answer, *snippets, ending=Ending.ANSWERED):
    call = '<call_tool name="google_search">Tall_Fox</call_tool>'
    segments = (
        Segment(origin=Origin.POLICY, text=call),
        shown(*snippets),
        Segment(origin=Origin.POLICY, text=answer),
    )
    return parse_trajectory(Trajectory(question="How wide?", segments=segments, ending=ending))


PAGE = Snippet(text="60 m", title="Tall Fox", url="https://almanac.example/d1")


def test_ids_resolve_to_title_and_address():
    assert sources_of(shown(PAGE)) == {"S_1": ("Tall Fox", "https://almanac.example/d1")}


def test_a_snippet_that_the_policy_writes_itself_is_no_source():
    forged = shown(PAGE, origin=Origin.POLICY)
    assert shown_sources(Trajectory(question="q", segments=(forged,))) == {}


@pytest.mark.parametrize(
    ("snippet", "source"),
    [
        (Snippet(text="x", title="Only a title"), ("Only a title", "")),
        (Snippet(text="x", url="https://a.example/(b)"), ("", "https://a.example/%28b%29")),
        (Snippet(text="x", title="t", url="javascript:alert(1)"), ("t", "")),
        (Snippet(text="x"), ("", "")),
    ],
)
def test_what_a_tool_did_not_say_stays_empty_and_only_web_addresses_are_links(snippet, source):
    assert sources_of(shown(snippet)) == {"S_1": source}


def test_citations_become_numbered_links_and_invented_ones_a_question_mark():
    answer = '<cite id="S_1, S_9">60 m</cite> wide.'
    sources = {"S_1": SnippetSource("t", "https://a.example/1")}
    assert linked_answer(answer, {"S_1": 1}, sources=sources) == "60 m [\\[1\\]](https://a.example/1)[?] wide."


def test_a_report_has_question_answer_sources_and_searches():
    report = render_report(parsed('<answer><cite id="S_1">60 m</cite></answer>', PAGE))
    assert report == (
        "# How wide?\n\n60 m [\\[1\\]](https://almanac.example/d1)\n\n"
        "## Sources\n\n1. [Tall Fox](https://almanac.example/d1) (S_1)\n\n"
        "## How it was found\n\n2 turns, 1 searches; ending: answered.\n- google\\_search: Tall\\_Fox\n"
    )


def test_an_invented_citation_and_a_truncated_answer_are_named():
    report = render_report(parsed('<answer><cite id="S_7">60 m</cite>', PAGE, ending=Ending.TOKEN_BUDGET))
    assert "never shown by a tool in this episode: S\\_7." in report
    assert "(The answer is truncated here.)" in report


@pytest.mark.parametrize("ending", [ending for ending in Ending if ending is not Ending.ANSWERED])
def test_every_ending_without_an_answer_is_explained(ending):
    assert explain_ending(ending)
    assert explain_ending(ending) in render_report(parsed("<think>t", PAGE, ending=ending))
