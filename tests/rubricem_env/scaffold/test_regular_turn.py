"""The short way through a turn by the book gives what the long way gives, or nothing."""

import pytest
from hypothesis import given, settings, strategies as st

from rubricem_env.scaffold.parser import read_any_turn
from rubricem_env.scaffold.regular_turn import read_regular_turn

THINK = "<think>a thought</think>"
STATE = "<state_evaluation>so far</state_evaluation>"
PLAN = (
    "<structured_plan>\n<deep_analysis>a</deep_analysis> <rubric>r</rubric>"
    "<research_plan>p</research_plan></structured_plan>"
)
REVIEW = "<review><rubric_review>r</rubric_review><writing_plan>w</writing_plan></review>"
CALL = '<call_tool name="snippet_search" limit="5">a query</call_tool>'
ANSWER = '<answer>It is <cite id="S_1">60 m</cite>.</answer>'
REGULAR = [
    f"{THINK}{PLAN}{CALL}",
    f"{THINK}\n{STATE}\n{CALL}\n",
    f"  {THINK}{STATE}{PLAN}{CALL}",
    f"{THINK}{STATE}{REVIEW}\n\n{ANSWER}",
    f"{THINK} in between {CALL}",
    f"{THINK}<structured_plan><rubric>only</rubric></structured_plan>{CALL}",
    f"{THINK}\ufffd\u202e{CALL}",
]
PARTS = (THINK, STATE, PLAN, REVIEW, CALL, ANSWER, "", "\n", " text ", "<", "\u202e", "\ud800", "<cite>", "</answer>")


@pytest.mark.parametrize("text", REGULAR)
def test_a_turn_by_the_book_takes_the_short_way_to_the_same_turn(text):
    assert read_regular_turn(text, 3) == read_any_turn(text, 3)


@given(st.lists(st.sampled_from((*PARTS, *REGULAR)), max_size=8).map("".join))
@settings(max_examples=400)
def test_where_the_short_way_says_anything_it_says_what_the_long_way_says(text):
    turn = read_regular_turn(text, 2)
    assert turn is None or turn == read_any_turn(text, 2)


@given(st.text(alphabet='<>/"= acdehiklnrstw_\n', max_size=60))
def test_attributes_and_queries_of_any_kind_are_read_alike(written):
    for text in (f"{THINK}<call_tool{written}>q</call_tool>", f'{THINK}<call_tool name="x">{written}</call_tool>'):
        turn = read_regular_turn(text, 1)
        assert turn is None or turn == read_any_turn(text, 1)


@pytest.mark.parametrize(
    "text",
    [
        CALL,
        f"{THINK}{CALL} and more",
        f"{THINK}{CALL}{ANSWER}",
        f"{THINK}<answer> </answer>",
        f'{THINK}<call_tool name="">q</call_tool>',
        f'{THINK}<call_tool name="x" name="y">q</call_tool>',
        f'{THINK}<call_tool name="x" query="y">q</call_tool>',
        f'{THINK}<call_tool name="x"> </call_tool>',
        f"{THINK}{REVIEW}{STATE}{ANSWER}",
        f"<THINK>a</THINK>{CALL}",
        f"{THINK}a < b{CALL}",
    ],
)
def test_anything_out_of_the_ordinary_is_left_to_the_reader(text):
    assert read_regular_turn(text, 1) is None
