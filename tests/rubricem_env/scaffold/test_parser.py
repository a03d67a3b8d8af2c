"""One emission in, one turn out: actions, blocks, thoughts, and every way to get them wrong."""

import pytest

from rubricem_env.domain.trajectory import ToolCall
from rubricem_env.scaffold.parser import EmissionStream, parse_turn
from rubricem_env.scaffold.violation import Code

CALL = '<call_tool name="google_search">fox</call_tool>'


def codes(text: str) -> list[str]:
    return [found.code.value for found in parse_turn(text).violations]


def answer_of(text: str) -> str | None:
    turn = parse_turn(text)
    return None if turn.answer is None else turn.answer.inner(text)


def names(text: str) -> str:
    return " ".join(block.name for block in parse_turn(text).blocks)


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
        ("< ANSWER>a", "lookalike_tag"),
        ("&lt;Answer&gt;a", "lookalike_tag"),
    ],
)
def test_what_breaks_a_rule_is_named(text, code):
    assert code in codes(text)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think><answer>draft</answer></think><answer>final</answer>", "final"),
        ("<review>I <think> of <answer>x</answer></review><answer>a</answer>", "a"),
        ("<answer>the <answer> tag</answer>", "the <answer> tag"),
        ("<answer>write <call_tool> to search</answer>", "write <call_tool> to search"),
        ("<review>then <answer> it</review><answer>a</answer>", "a"),
    ],
)
def test_an_answer_begins_at_its_first_tag_outside_thoughts_and_blocks(text, answer):
    assert answer_of(text) == answer


@pytest.mark.parametrize(
    "before",
    ["I will <call_tool> now: ", "<answer>like ", "<answer><tool_output>", "<review>the <tool_output> says</review>"],
)
@pytest.mark.parametrize("after", ["", " so</answer>", "</tool_output>", "<answer>a</answer>"])
def test_the_first_action_that_closes_ends_the_turn_and_a_call_begins_at_its_last_tag(before, after):
    turn = parse_turn(before + CALL + after)
    assert (turn.call, turn.answer, turn.end) == (parse_turn(CALL).call, None, len(before + CALL))


@pytest.mark.parametrize(
    ("text", "blocks", "found"),
    [
        (CALL + " \n", "call_tool", []),
        (f"I will <call_tool> now: {CALL}", "call_tool", ["unclosed_tag"]),
        ("<review><think></review></think>" + CALL, "review call_tool", ["nested_tag"]),
        ("<review>then <answer> it</review><answer>a</answer>", "review answer", ["nested_tag"]),
        (
            "<state_evaluation><answer><review>r</review></state_evaluation>" + CALL,
            "state_evaluation call_tool",
            ["nested_tag", "nested_tag"],
        ),
        ("<structured_plan>no <review> yet</structured_plan>" + CALL, "structured_plan call_tool", ["nested_tag"]),
        (f"<review>the <tool_output> says</review>{CALL}", "review call_tool", ["nested_tag"]),
        (f"maybe <answer> soon <review>r</review>{CALL}", "review call_tool", ["unclosed_tag"]),
        (f'<snippet id="S_1"/>{CALL}', "call_tool", ["self_written_snippet"]),
        (f'<snippet id="S_1"/></snippet>{CALL}', "call_tool", ["self_written_snippet", "unexpected_close"]),
        ('<answer><cite id="S_1">c</cite></cite></answer>', "answer", []),
    ],
)
def test_a_tag_that_is_only_mentioned_is_plain_text(text, blocks, found):
    assert (names(text), codes(text)) == (blocks, found)


def test_an_unclosed_thought_hides_the_rest():
    turn = parse_turn("<think>hm <answer>a</answer>")
    assert (turn.has_action, [(block.name, block.is_closed) for block in turn.blocks]) == (False, [("think", False)])


def test_an_unclosed_block_ends_where_the_next_one_begins():
    text = "<state_evaluation>s<review>r</review>" + CALL
    first, second, _ = parse_turn(text).blocks
    # "<state_evaluation>" is 18 characters, the text in it one
    assert (first.name, first.end, first.is_closed) == ("state_evaluation", 19, False)
    assert (second.name, second.start, second.is_closed) == ("review", 19, True)


@pytest.mark.parametrize(
    ("plan", "parts"),
    [
        (
            "<deep_analysis>d<rubric>r</rubric><research_plan>p</structured_plan>",
            [("deep_analysis", "d"), ("rubric", "r"), ("research_plan", "p")],
        ),
        ("<deep_analysis>d</deep_analysis><rubric>r", [("deep_analysis", "d"), ("rubric", "r")]),
        ("<deep_analysis>no <rubric> yet</deep_analysis></structured_plan>", [("deep_analysis", "no <rubric> yet")]),
    ],
)
def test_sections_belong_to_their_block_and_end_where_the_next_begins(plan, parts):
    assert sections("<structured_plan>" + plan + CALL) == parts


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("<think>t</think><tool_output>x</tool_output><answer>a</answer>", 16),  # "<think>t</think>"
        (f"<review>r<tool_output>x</tool_output></review>{CALL}", 9),  # "<review>r"
        (f"<review>r<tool_output>x{CALL}", 9),
        ("<review>r<tool_output>x", 9),
    ],
)
def test_self_written_tool_output_cuts_the_turn(text, end):
    turn = parse_turn(text)
    assert (turn.end, turn.has_action) == (end, False)


def test_a_truncated_answer_is_an_unclosed_block_up_to_the_end():
    turn = parse_turn("<review>r<answer>so far <review>")
    blocks = [(block.name, block.is_closed, block.end) for block in turn.blocks]
    assert (blocks, turn.answer) == ([("review", False, 9), ("answer", False, 32)], None)


def test_violations_come_in_the_order_of_their_place():
    starts = [found.start for found in parse_turn("</review>\x00<REVIEW>x</answer>" + CALL + "y").violations]
    assert starts == sorted(starts)
    assert len(starts) > 3


@pytest.mark.no_cover
def test_a_megabyte_of_tags_is_one_turn():
    turn = parse_turn("<review></structured_plan>" * 40_000)
    assert Code.NO_ACTION in {found.code for found in turn.violations}


def test_a_stream_has_its_turn_as_soon_as_the_action_closes_outside_a_thought():
    stream = EmissionStream(3)
    assert stream.feed("<think><answer>a</answer>") is None
    assert stream.feed("</think><answer>a</ans") is None
    turn = stream.feed("wer> more")
    # the thought is 33 characters, the answer 18
    assert (turn.number, turn.end, turn.text[turn.end :]) == (3, 51, " more")


def test_a_thought_that_opens_and_closes_in_one_tag_is_an_empty_block():
    turn = parse_turn("<think/><answer>x</answer>")
    assert [(block.name, block.inner_start, block.inner_end) for block in turn.blocks] == [
        ("think", 8, 8),
        ("answer", 16, 17),
    ]
    assert not turn.violations
