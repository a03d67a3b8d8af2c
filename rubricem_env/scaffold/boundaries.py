"""The stage boundaries of a trajectory, both for the policy's tokens and for the judge.

The judge prompt of the paper (section C.3) settles what the main text leaves open:
- Plan: from the start through the end of the first structured plan, if it comes before the first tool call.
- Research: from there to the review. Revised plans, and reviews that a further tool call follows, are Research.
- Review: the last review with no tool call after it, from the last thought before it.
- Answer: everything after the review once there is an answer; without a review, from the opening tag.

A scaffold says which stages are closed by their block, as Plan is, and which are opened by it, as Review and Answer
are; what lies between belongs to the stage that loops. Without such a stage it belongs to the next one that is there.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from rubricem_env.domain.base import Span, StageSpans
from rubricem_env.domain.scaffold import Scaffold, StageForm
from rubricem_env.scaffold.grammar import CALL_TOOL, DEFAULT, THINK, grammar_of
from rubricem_env.scaffold.turn import Block, Turn


class PlacedBlock(NamedTuple):
    """A block with its place in the policy's joined text."""

    start: int
    """Where the block begins in the joined text."""
    block: Block
    turn: Turn
    """The turn that the block is part of."""


def place_blocks(turns: Sequence[Turn]) -> tuple[PlacedBlock, ...]:
    placed = []
    offset = 0
    for turn in turns:
        for block in turn.blocks:
            placed.append(PlacedBlock(offset + block.start, block, turn))
        offset += len(turn.text)
    return tuple(placed)


def find_boundaries(turns: Sequence[Turn], scaffold: Scaffold = DEFAULT) -> StageSpans:
    """Partition the turns' joined text into stages; a stage that never happened gets no span."""
    blocks = place_blocks(turns)
    return boundaries_of(turns, blocks, find_answer(turns, blocks, scaffold), scaffold)


def boundaries_of(
    turns: Sequence[Turn], blocks: Sequence[PlacedBlock], answer: PlacedBlock | None, scaffold: Scaffold = DEFAULT
) -> StageSpans:
    size = sum(len(turn.text) for turn in turns)
    closing = [form.ends_with for form in scaffold.stages if form.ends_with]
    ends = _ends_of_closed(blocks, closing, grammar_of(scaffold).actions)
    planned = max(ends, default=0)
    opened = _find_opened(blocks, scaffold, size if answer is None else answer.start, planned)
    starts = _starts_of_opened(opened, answer, size)
    if scaffold.loops:
        cuts = [0, *ends, *starts, size]
    elif answer is not None or any(opened):
        # Nothing lies between the closed stages and the first one that was opened.
        cuts = [*[0, *ends][: len(ends)], *(planned if start == starts[0] else start for start in starts), size]
    else:
        # What follows the last closed stage is work on the next one.
        done = next((place for place in range(len(ends), 0, -1) if ends[place - 1] > [0, *ends][place - 1]), 0)
        cuts = [0, *ends][: done + 1] + [size] * (len(scaffold.stages) - done)
    named = zip(scaffold.names, pairwise(cuts), strict=True)
    return {stage: Span(start, end) for stage, (start, end) in named if end > start}


def _ends_of_closed(blocks: Iterable[PlacedBlock], closing: Sequence[str], actions: Sequence[str]) -> list[int]:
    """Where each closed stage ends: after its first block before any action; without one, where the last one ended."""
    ends: dict[int, int] = {}
    first = 0
    for start, block, turn in blocks:
        if first == len(closing) or (turn.has_action and block.name in actions):
            break
        if block.name in closing[first:]:
            place = closing.index(block.name)
            ends[place] = start + block.end - block.start
            first = place + 1
    return [max([0, *(end for place, end in ends.items() if place <= index)]) for index in range(len(closing))]


def find_answer(
    turns: Sequence[Turn], blocks: Sequence[PlacedBlock], scaffold: Scaffold = DEFAULT
) -> PlacedBlock | None:
    """The answer that ends the episode, or the unclosed one at the end of the text."""
    answers = [placed for placed in blocks if placed.block.name == scaffold.answer_tag]
    closed = next((placed for placed in answers if placed.turn.answer is not None), None)
    return closed or next((placed for placed in answers[-1:] if placed.turn is turns[-1]), None)


def _find_opened(
    blocks: Sequence[PlacedBlock], scaffold: Scaffold, limit: int, planned: int
) -> list[tuple[int, int] | None]:
    """Where each opened stage before the answer begins by itself, and where its block ends; None without its block."""
    forms = [form for form in scaffold.stages[:-1] if form.begins_with]
    found: list[tuple[int, int] | None] = []
    for form in reversed(forms):
        block = _last_block(blocks, form.begins_with, limit, planned)
        if block is not None:
            limit = block.start
        found.append(
            block and (_last_thought(blocks, block, forms, planned) if form.from_thought else limit, block.end)
        )
    return found[::-1]


def _last_block(blocks: Sequence[PlacedBlock], name: str | None, limit: int, planned: int) -> Span | None:
    """The last such block before the limit, which is the next stage or the end, that no tool call follows."""
    for start, block, turn in reversed(blocks):
        if start < limit and turn.call is not None:
            return None
        if block.name == name and planned <= start < limit:
            return Span(start, start + block.end - block.start)
    return None


def _last_thought(blocks: Sequence[PlacedBlock], own: Span, forms: Sequence[StageForm], planned: int) -> int:
    """The start of the last thought since the last tool call or block of a stage; without one, the block's own."""
    stops = (CALL_TOOL, *(form.begins_with for form in forms))
    for start, block, _ in reversed(blocks):
        if start >= own.start:
            continue
        if start < planned or block.name in stops:
            return own.start
        if block.name == THINK:
            return start
    return own.start


def _starts_of_opened(opened: Sequence[tuple[int, int] | None], answer: PlacedBlock | None, size: int) -> list[int]:
    """Where each opened stage begins, the answer's last: where the one before it ended, or where it begins by itself.

    One that is not there begins with the next one, and so is empty.
    """
    starts: list[int | None] = []
    ended: int | None = None
    for found in opened:
        begin, end = found or (None, ended)
        starts.append(begin if ended is None or begin is None else ended)
        ended = end
    starts.append(size if answer is None else answer.start if ended is None else ended)
    return [next(start for start in starts[place:] if start is not None) for place in range(len(starts))]
