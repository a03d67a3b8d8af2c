"""Watching an emission grow."""

from rubricem_env.scaffold.parser import EmissionStream


def test_the_turn_is_there_as_soon_as_its_action_closes():
    stream = EmissionStream(3)
    assert stream.feed("<answer>a</ans") is None
    turn = stream.feed("wer> more")
    assert turn is not None
    assert (turn.number, turn.end, turn.text) == (3, 18, "<answer>a</answer> more")


def test_a_closing_tag_inside_a_thought_is_not_the_end():
    stream = EmissionStream()
    assert stream.feed("<think><answer>a</answer>") is None
    assert stream.feed("</think>") is None
    assert not stream.close().has_action


def test_self_written_tool_output_ends_the_turn_without_an_action():
    turn = EmissionStream().feed("hm <tool_output>")
    assert turn is not None
    assert (turn.end, turn.has_action) == (3, False)
