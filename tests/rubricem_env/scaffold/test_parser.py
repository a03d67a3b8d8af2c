"""One emission in, one turn out: actions, blocks, thoughts, and every way to get them wrong."""

import pytest

from rubricem_env.domain.trajectory import ToolCall
from rubricem_env.scaffold.grammar import Code
from rubricem_env.scaffold.parser import parse_turn

CALL = '<call_tool name="google_search">fox</call_tool>'


def codes(text: str) -> list[str]:
    return [found.code.value for found in parse_turn(text).violations]


def answer_of(text: str) -> str | None:
    turn = parse_turn(text)
    return None if turn.answer is None else turn.answer.inner(text)


def names(text: str) -> list[str]:
    return [block.name for block in parse_turn(text).blocks]


def sections(text: str) -> list[tuple[str, str]]:
    return [(part.name, part.inner(text)) for part in parse_turn(text).blocks[0].sections]


def test_a_call_has_its_name_its_query_and_its_parameters_sorted():
    turn = parse_turn('<think>t</think><call_tool name="snippet_search" year="2020" limit="3"> a fox </call_tool>')
    assert turn.call == ToolCall(name="snippet_search", query="a fox", parameters=(("limit", "3"), ("year", "2020")))
    assert turn.violations == ()


@pytest.mark.parametrize(
    "opening",
    [
        "<call_tool name='google_search'>",
        "<call_tool name=google_search>",
        "<CALL_TOOL NAME = google_search >",
        "<call_tool name=\u201cgoogle_search\u201d>",
        '<call_tool name=\\"google_search\\">',
        "<call_tool name=`google_search`>",
        '<call_tool name="google_search>',
        '<call_tool name="google_search" name="other">',
    ],
)
def test_the_tools_name_is_read_in_any_quoting(opening):
    call = parse_turn(f"{opening}fox</call_tool>").call
    assert call is not None
    assert (call.name, call.query) == ("google_search", "fox")


def test_a_call_that_closes_itself_may_have_its_query_as_an_attribute():
    call = parse_turn('<call_tool name="a" query="fox"/>').call
    assert call == ToolCall(name="a", query="fox")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("<call_tool>fox</call_tool>", "missing_tool_name"),
        ('<call_tool name="a"> </call_tool>', "empty_query"),
        ('<call_tool name="a" name="b">q</call_tool>', "bad_attribute"),
        ("<answer> \n</answer>", "empty_answer"),
        ("<answer/>", "empty_answer"),
        ("<ANSWER>a</ANSWER>", "tag_case"),
        ("<analysis>a</analysis>" + CALL, "alias_tag"),
        ("<analysis>a</analysis>" + CALL, "misplaced_tag"),
        ("</review>" + CALL, "unexpected_close"),
        ("<review>r" + CALL, "unclosed_tag"),
        ("<review/><review/>" + CALL, "duplicate_block"),
        ("<structured_plan><rubric/><rubric/></structured_plan>" + CALL, "duplicate_block"),
        ("<think><answer>a</answer></think>" + CALL, "tag_in_think"),
        ("<structured_plan><think>t</think></structured_plan>" + CALL, "nested_tag"),
        ("<answer>see <review>r</review></answer>", "nested_tag"),
        ("<answer>see <tool_output>r</tool_output></answer>", "self_written_tool_output"),
        ('<answer>see <snippet id="S_1">r</snippet></answer>', "self_written_snippet"),
        ('<snippet id="S_1">r</snippet>' + CALL, "self_written_snippet"),
        (CALL + "\nmore", "text_after_action"),
        (CALL + "<answer>a</answer>", "two_actions"),
        (CALL + "<answer/>", "two_actions"),
        (CALL + "<tool_output>x</tool_output>", "self_written_tool_output"),
        ("", "no_action"),
        ("a\x00b", "control_character"),
        ("a\u202eb", "control_character"),
        ("a\ud800b", "invalid_unicode"),
        ("< answer>a", "lookalike_tag"),
        ("&lt;answer&gt;a", "lookalike_tag"),
    ],
)
def test_what_breaks_a_rule_is_named(text, code):
    assert code in codes(text)


def test_only_the_first_action_counts_and_the_turn_ends_there():
    turn = parse_turn(CALL + "<answer>a</answer>")
    assert (turn.call is not None, turn.answer, turn.end) == (True, None, len(CALL))


def test_white_space_after_an_action_is_no_violation():
    assert codes(CALL + " \n") == []


def test_a_draft_answer_in_a_thought_does_not_end_the_turn():
    assert answer_of("<think><answer>draft</answer></think><answer>final</answer>") == "final"


def test_an_unclosed_thought_hides_the_rest():
    turn = parse_turn("<think>hm <answer>a</answer>")
    assert (turn.has_action, names("<think>hm <answer>a</answer>")) == (False, ["think"])
    assert not turn.blocks[0].is_closed


def test_a_thought_in_a_block_hides_all_but_the_end_of_that_block():
    text = "<review>I <think> of <answer>x</answer></review><answer>a</answer>"
    assert names(text) == ["review", "answer"]
    assert answer_of(text) == "a"


def test_the_closing_tag_of_a_mentioned_thought_is_expected():
    assert "unexpected_close" not in codes("<review><think></review></think>" + CALL)


def test_an_answer_begins_at_its_first_tag_because_a_report_may_mention_one():
    assert answer_of("<answer>the <answer> tag</answer>") == "the <answer> tag"


def test_a_call_begins_at_its_last_tag():
    text = f"I will <call_tool> now: {CALL}"
    assert parse_turn(text).call == ToolCall(name="google_search", query="fox")
    assert codes(text) == ["unclosed_tag"]


def test_an_answer_that_mentions_a_call_stays_an_answer():
    assert answer_of("<answer>write <call_tool> to search</answer>") == "write <call_tool> to search"


def test_an_action_that_closes_first_wins_as_if_the_text_stopped_there():
    stopped = f"<answer>like {CALL}"
    assert parse_turn(stopped + " so</answer>").call == parse_turn(stopped).call == parse_turn(CALL).call


def test_an_action_mentioned_in_a_block_is_plain_text():
    text = "<review>then <answer> it</review><answer>a</answer>"
    assert (names(text), answer_of(text)) == (["review", "answer"], "a")
    assert codes(text) == ["nested_tag"]


def test_a_whole_block_inside_an_action_mentioned_in_a_block_is_plain_text():
    text = "<state_evaluation><answer><review>r</review></state_evaluation>" + CALL
    assert names(text) == ["state_evaluation", "call_tool"]
    assert codes(text) == ["nested_tag", "nested_tag"]


def test_a_block_inside_a_block_that_closes_first_is_plain_text():
    assert names("<structured_plan>no <review> yet</structured_plan>" + CALL) == ["structured_plan", "call_tool"]


def test_an_unclosed_block_ends_where_the_next_one_begins():
    text = "<state_evaluation>s<review>r</review>" + CALL
    first, second, _ = parse_turn(text).blocks
    # "<state_evaluation>" is 18 characters, the text in it one
    assert (first.name, first.end, first.is_closed) == ("state_evaluation", 19, False)
    assert (second.name, second.start, second.is_closed) == ("review", 19, True)


def test_sections_belong_to_their_block_and_end_where_the_next_begins():
    text = "<structured_plan><deep_analysis>d<rubric>r</rubric><research_plan>p</structured_plan>" + CALL
    assert sections(text) == [("deep_analysis", "d"), ("rubric", "r"), ("research_plan", "p")]
    assert codes(text) == ["unclosed_tag", "unclosed_tag"]


def test_sections_of_an_unclosed_block_are_kept():
    text = "<structured_plan><deep_analysis>d</deep_analysis><rubric>r" + CALL
    assert sections(text) == [("deep_analysis", "d"), ("rubric", "r")]


def test_a_section_tag_inside_a_section_that_closes_first_is_plain_text():
    text = "<structured_plan><deep_analysis>no <rubric> yet</deep_analysis></structured_plan>" + CALL
    assert sections(text) == [("deep_analysis", "no <rubric> yet")]


def test_self_written_tool_output_cuts_the_turn():
    turn = parse_turn("<think>t</think><tool_output>x</tool_output><answer>a</answer>")
    # "<think>t</think>" is 16 characters
    assert (turn.end, turn.has_action) == (16, False)


def test_self_written_tool_output_inside_a_block_cuts_the_turn_too():
    turn = parse_turn(f"<review>r<tool_output>x</tool_output></review>{CALL}")
    assert (turn.end, turn.has_action) == (9, False)


def test_an_action_inside_self_written_tool_output_is_cut_with_it():
    turn = parse_turn(f"<review>r<tool_output>x{CALL}")
    assert (turn.end, turn.has_action) == (9, False)


def test_tool_output_that_a_block_only_mentions_is_plain_text():
    text = f"<review>the <tool_output> says</review>{CALL}"
    assert (names(text), codes(text)) == (["review", "call_tool"], ["nested_tag"])


def test_an_answer_may_quote_tool_output_with_a_call_in_it():
    text = f"<answer><tool_output>{CALL}</tool_output>"
    assert parse_turn(text).call == parse_turn(CALL).call


def test_tool_output_begun_in_a_block_cuts_where_the_text_breaks_off():
    assert parse_turn("<review>r<tool_output>x").end == 9


def test_a_truncated_answer_is_an_unclosed_block_up_to_the_end():
    turn = parse_turn("<review>r<answer>so far <review>")
    assert [(block.name, block.is_closed, block.end) for block in turn.blocks] == [
        ("review", False, 9),
        ("answer", False, 32),
    ]
    assert turn.answer is None


def test_blocks_after_a_mention_of_an_action_count():
    assert names(f"maybe <answer> soon <review>r</review>{CALL}") == ["review", "call_tool"]


def test_a_mention_that_closes_itself_expects_no_closing_tag():
    assert codes(f'<snippet id="S_1"/>{CALL}') == ["self_written_snippet"]
    assert codes(f'<snippet id="S_1"/></snippet>{CALL}') == ["self_written_snippet", "unexpected_close"]


def test_citations_shape_nothing():
    assert codes('<answer><cite id="S_1">c</cite></cite></answer>') == []


def test_violations_come_in_the_order_of_their_place():
    starts = [found.start for found in parse_turn("</review>\x00<REVIEW>x</answer>" + CALL + "y").violations]
    assert starts == sorted(starts)
    assert len(starts) > 3


def test_a_megabyte_of_tags_is_one_turn():
    turn = parse_turn("<review></structured_plan>" * 40_000)
    assert Code.NO_ACTION in {found.code for found in turn.violations}
