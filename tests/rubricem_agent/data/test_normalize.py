"""The student's language: thoughts, tags and tool names in their canonical form, and nothing else changed."""

from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from rubricem_agent.data.base import Trace
from rubricem_agent.data.filter import normalize, unbalanced_thoughts
from rubricem_env.domain.trajectory import Origin, Segment, Trajectory
from rubricem_env.scaffold.parsed import parse_trajectory

Make = Callable[..., Trace]


def normalized(text: str) -> str:
    segments = (Segment(origin=Origin.POLICY, text=text),)
    return normalize(Trajectory(question="q", segments=segments)).policy_text


VARIANTS = {
    "<scratchpad>a</scratchpad>": "<think>a</think>",
    "<structured_plan><analysis>a</analysis><Rubrics>b</Rubrics>": (
        "<structured_plan><deep_analysis>a</deep_analysis><rubric>b</rubric>"
    ),
    '<call_tool name="google_web_search">q</call_tool>': '<call_tool name="google_search">q</call_tool>',
    "<call_tool name='Scholar_Search' num=5>q</call_tool>": '<call_tool name="snippet_search" limit="5">q</call_tool>',
    '<call_tool name="snippet_search" fieldsofstudy="Art">q</call_tool>': (
        '<call_tool name="snippet_search" fieldsOfStudy="Art">q</call_tool>'
    ),
    '<call_tool name="google_search" query="q" />': '<call_tool name="google_search">q</call_tool>',
    '<call_tool name="teleport">q</call_tool>': '<call_tool name="teleport">q</call_tool>',
    "<scratchpad>Now an <analysis>, then </review>.</scratchpad>": "<think>Now an <analysis>, then </review>.</think>",
}


@pytest.mark.parametrize("written", VARIANTS)
def test_aliases_and_variants_become_canonical_but_unknown_tools_and_tags_in_thoughts_stay(written: str) -> None:
    assert normalized(written) == VARIANTS[written]


def test_a_normalised_trace_reads_as_before_without_aliases_and_tool_text_is_never_touched(make_trace: Make) -> None:
    before = make_trace().trajectory
    after = normalize(before)

    assert {found.code for found in parse_trajectory(before).violations} == {"alias_tag"}
    assert parse_trajectory(after).violations == ()
    assert parse_trajectory(after).answer == parse_trajectory(before).answer
    assert after.segments[2] == before.segments[2]


@pytest.mark.parametrize(
    ("text", "is_balanced"),
    [
        ("<scratchpad>a</scratchpad><scratchpad>b</scratchpad>", True),
        ("<scratchpad>a</think>", True),
        ("<scratchpad>a", False),
        ("a</scratchpad>", False),
        ("<scratchpad>a<think>b</think></scratchpad>", False),
    ],
)
def test_thoughts_balance_when_each_closes_before_the_next_opens(text: str, is_balanced: bool) -> None:
    trajectory = Trajectory(question="q", segments=(Segment(origin=Origin.POLICY, text=text),))
    assert (list(unbalanced_thoughts(trajectory)) == []) is is_balanced


@given(st.lists(st.sampled_from(["<scratchpad>", "</scratchpad>", "<answer>", "</answer>", "<analysis>", "x ", "\n"])))
def test_normalising_twice_is_normalising_once(pieces: list[str]) -> None:
    once = normalized("".join(pieces))
    assert normalized(once) == once
