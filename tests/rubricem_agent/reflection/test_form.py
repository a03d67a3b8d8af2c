"""What holds a reflection's form: closing a block that was left open, and a reward for the part that is intact."""

import pytest

from rubricem_agent.memory.gate import Refusal
from rubricem_agent.reflection.candidates import close_blocks, intact_share, parse_blocks

R, T = "reflection_rubrics", "reflection_takeaways"
WHOLE = f"<{R}>\na\n</{R}>\n<{T}>\nb\n</{T}>"


@pytest.mark.parametrize(
    ("text", "share"),
    # Of four tags: all; without the last; without the first closing; without both closings.
    [(WHOLE, 1.0), (f"<{R}>a</{R}><{T}>b", 0.75), (f"<{R}>a <{T}>b</{T}>", 0.75), (f"<{R}>a <{T}>b", 0.5)],
)
def test_a_block_that_was_left_open_is_closed_where_it_ends(text, share):
    assert intact_share(text) == share
    assert parse_blocks(text, repairs=True) == ("a", "b")
    assert isinstance(parse_blocks(text), Refusal) is (share < 1)
    assert close_blocks(close_blocks(text)) == close_blocks(text)


@pytest.mark.parametrize(
    "text", ["", "a", f"<{R}>a", f"<{T}>b", f"<{R}>a</{R}><{R}>a</{R}><{T}>b", f"a</{R}><{T}>b</{T}>"]
)
def test_a_block_that_is_missing_or_doubled_is_not_made_up(text):
    assert isinstance(parse_blocks(text, repairs=True), Refusal)


def test_a_whole_reflection_is_not_touched():
    assert close_blocks(WHOLE) == WHOLE
