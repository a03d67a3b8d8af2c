"""What holds for any text whatever, in any pieces."""

import pytest
from hypothesis import given, settings, strategies as st

from rubricem_env.domain.trajectory import Origin, Segment, Trajectory
from rubricem_env.scaffold.boundaries import find_boundaries
from rubricem_env.scaffold.lexer import Scanner, find_structure, find_tags
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_env.scaffold.parser import EmissionStream, parse_turn
from rubricem_env.scaffold.turn import Turn
from tests.rubricem_env.scaffold.fragments import emissions, pieces_of
from tests.scaffolds import SCAFFOLDS

in_pieces = emissions.flatmap(pieces_of)


def streamed(pieces: list[str]) -> Turn:
    stream = EmissionStream()
    for piece in pieces:
        turn = stream.feed(piece)
        if turn is not None:
            return turn
    return stream.close()


@settings(max_examples=500)
@given(in_pieces)
def test_the_scanner_finds_the_same_tags_in_any_pieces(pieces):
    scanner = Scanner()
    found = [token for piece in pieces for token in scanner.feed(piece)]
    assert [*found, *scanner.close()] == find_structure("".join(pieces))


@settings(max_examples=500)
@given(in_pieces)
def test_a_turn_is_the_same_in_any_pieces_up_to_where_it_ends(pieces):
    whole, grown = parse_turn("".join(pieces)), streamed(pieces)
    assert grown.text[: grown.end] == whole.text[: whole.end]
    assert (grown.call, grown.answer, grown.blocks, grown.end) == (whole.call, whole.answer, whole.blocks, whole.end)


@pytest.mark.no_cover
@settings(max_examples=500)
@given(emissions, emissions)
def test_what_is_written_after_an_action_cannot_change_it(text, more):
    turn = parse_turn(text + " ")
    if turn.has_action:
        again = parse_turn(text + " " + more)
        assert (again.call, again.answer, again.blocks, again.end) == (turn.call, turn.answer, turn.blocks, turn.end)


@given(st.text(st.characters(codec=None, exclude_categories=())) | emissions)
def test_any_text_is_a_turn_and_keeps_its_text(text):
    turn = parse_turn(text, 7)
    assert (turn.number, turn.text) == (7, text)
    assert all(found.turn == 7 and 0 <= found.start <= len(text) for found in turn.violations)
    assert turn.has_action or turn.violations


@pytest.mark.no_cover
@settings(max_examples=500)
@given(emissions)
def test_blocks_lie_in_order_and_sections_inside_their_block(text):
    turn = parse_turn(text)
    reached = 0
    for block in turn.blocks:
        assert reached <= block.start < block.inner_start <= block.inner_end <= block.end <= turn.end
        reached = block.start + 1 if block.end == block.start else block.end
        inside = block.inner_start
        for section in block.sections:
            assert inside <= section.start < section.inner_start <= section.inner_end <= section.end <= block.inner_end
            inside = section.end


@pytest.mark.no_cover
@settings(max_examples=500)
@given(st.lists(emissions, max_size=6), st.sampled_from(SCAFFOLDS))
def test_stage_spans_partition_the_policys_text(texts, scaffold):
    spans = find_boundaries([parse_turn(text, scaffold=scaffold) for text in texts], scaffold)
    lengths = sorted(spans.values())
    covered = 0
    for start, end in lengths:
        assert start == covered < end
        covered = end
    assert covered == sum(map(len, texts))


@pytest.mark.no_cover
@given(st.lists(st.tuples(st.sampled_from(Origin), emissions), max_size=8))
def test_any_segments_can_be_read(parts):
    segments = tuple(Segment(origin=origin, text=text) for origin, text in parts)
    parsed = parse_trajectory(Trajectory(question="", segments=segments))
    assert parsed.policy_text == parsed.trajectory.policy_text
    assert parsed.is_complete == any(turn.answer for turn in parsed.turns)


@given(st.text("<>/ax", max_size=60))
def test_structure_is_all_tags_but_citations(text):
    text = text.replace("a", "answer").replace("x", 'cite id="S_1"')
    assert find_structure(text) == [token for token in find_tags(text) if token.name != "cite"]
