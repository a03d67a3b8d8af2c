"""When a turn is over."""

import pytest

from rubricem_agent.policy.base import LOOP_SPAN, TurnEnd, TurnWatch, is_looping


def test_a_closed_call_ends_the_turn():
    watch = TurnWatch()
    assert watch.feed('<think>t</think><call_tool name="google_search">q</call_to') is None
    assert watch.feed("ol>") is TurnEnd.ACTION


def test_a_closing_tag_that_a_thought_speaks_of_does_not():
    assert TurnWatch().feed("<think>I will end with </answer> when <answer>x</answer> is ready") is None


def test_tool_output_of_its_own_making_ends_the_turn():
    assert TurnWatch().feed("<think>t</think><tool_output>") is TurnEnd.FOREIGN


def test_the_same_words_over_and_over_end_the_turn():
    watch = TurnWatch()
    ends = [watch.feed("and so on ") for _ in range(LOOP_SPAN)]
    # 400 characters are fed between checks and 1,600 must be alike: the fourth check, at the 160th piece.
    assert ends.index(TurnEnd.REPEATING) == 159


@pytest.mark.parametrize("text", ["", "abc", "".join(map(str, range(2_000)))])
def test_ordinary_text_is_no_loop(text):
    assert not is_looping(text)
