"""What is a tag and what is not."""

import pytest

from rubricem_env.scaffold.lexer import MAX_TAG, Scanner, find_tags, parse_attributes


@pytest.mark.parametrize(
    "text",
    ["< answer>", "<answers>", "<answer-x>", "<\u017fnippet>", "<thin\u212a>", "<answer", "&lt;answer>", "<//answer>"],
)
def test_what_is_no_tag_is_text(text):
    assert find_tags(text) == []


def test_a_quoted_value_may_hold_the_closing_bracket():
    (token,) = find_tags('<call_tool name="a>b">')
    assert (token.end, parse_attributes(token)[0]) == (22, {"name": "a>b"})


def test_a_candidate_never_reaches_past_the_next_bracket():
    assert [token.tag for token in find_tags('<answer x="<think>')] == ["<think>"]


def test_an_alias_is_read_as_its_canonical_name_and_keeps_what_was_written():
    (token,) = find_tags("</ScratchPad>")
    assert (token.name, token.written, token.closing, token.is_plain) == ("think", "ScratchPad", True, False)


@pytest.mark.parametrize(
    ("tag", "values", "is_clean"),
    [
        ('<cite id="S_1">', {"id": "S_1"}, True),
        ("<cite ID=S_1>", {"id": "S_1"}, True),
        ("<cite id='S_1' x>", {"id": "S_1", "x": ""}, True),
        ('<cite id="S_1>', {"id": "S_1"}, False),
        ("<cite id=\u2018S_1\u2019>", {"id": "S_1"}, True),
        ('<cite id="a" id="b">', {"id": "a"}, False),
    ],
)
def test_attributes_are_read_as_far_as_they_can_be(tag, values, is_clean):
    assert parse_attributes(find_tags(tag)[0]) == (values, is_clean)


def test_the_scanner_holds_back_only_what_can_become_a_tag():
    scanner = Scanner()
    assert scanner.feed("a < b <ans") == []
    assert [(token.start, token.end) for token in scanner.feed("wer>")] == [(6, 14)]
    assert scanner.close() == []


def test_the_scanner_gives_up_a_tag_that_grows_beyond_all_bounds():
    scanner = Scanner()
    scanner.feed("<answer ")
    assert scanner.feed("x" * MAX_TAG) == []
    assert [token.name for token in scanner.feed("<think>")] == ["think"]
