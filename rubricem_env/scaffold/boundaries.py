"""The stage boundaries of a trajectory, both for the policy's tokens and for the judge.

The judge prompt of the paper (section C.3) settles what the main text leaves open:
- Plan: from the start through the end of the first structured plan, if it comes before the first tool call.
- Research: from there to the review. Revised plans, and reviews that a further tool call follows, are Research.
- Review: the last review with no tool call after it, from the last thought before it.
- Answer: everything after the review once there is an answer; without a review, from the opening tag.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from rubricem_env.domain.base import STAGES, Span, StageSpans
from rubricem_env.scaffold.grammar import ANSWER, CALL_TOOL, PLAN, REVIEW, THINK
from rubricem_env.scaffold.turn import Block, Turn

ReviewStart = Literal["think", "review_tag"]
"""Where the Review stage begins; the final state evaluation goes with it under "think"."""


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


def find_boundaries(turns: Sequence[Turn], *, review_start: ReviewStart = "think") -> StageSpans:
    """Partition the turns' joined text into stages; a stage that never happened gets no span."""
    blocks = place_blocks(turns)
    return boundaries_of(turns, blocks, find_answer(turns, blocks), review_start)


def boundaries_of(
    turns: Sequence[Turn], blocks: Sequence[PlacedBlock], answer: PlacedBlock | None, review_start: ReviewStart
) -> StageSpans:
    size = sum(len(turn.text) for turn in turns)
    plan_end = _plan_end(blocks)
    begins = size if answer is None else answer.start
    review = _find_review(blocks, begins, plan_end)
    if review is None:
        cuts = (0, plan_end, begins, begins, size)
    else:
        review_from = review.start
        if review_start == "think":
            review_from = _last_thought_before(blocks, review, plan_end)
        cuts = (0, plan_end, review_from, size if answer is None else review.end, size)
    spans = zip(STAGES, pairwise(cuts), strict=True)
    return {stage: Span(start, end) for stage, (start, end) in spans if end > start}


def _plan_end(blocks: Iterable[PlacedBlock]) -> int:
    """The end of the first plan; 0 if none comes before the first tool call."""
    for start, block, turn in blocks:
        if block.name == PLAN:
            return start + block.end - block.start
        if turn.has_action and block.name in (CALL_TOOL, ANSWER):
            return 0
    return 0


def find_answer(turns: Sequence[Turn], blocks: Sequence[PlacedBlock]) -> PlacedBlock | None:
    """The answer that ends the episode, or the unclosed one at the end of the text."""
    answers = [placed for placed in blocks if placed.block.name == ANSWER]
    closed = next((placed for placed in answers if placed.turn.answer is not None), None)
    return closed or next((placed for placed in answers[-1:] if placed.turn is turns[-1]), None)


def _find_review(blocks: Sequence[PlacedBlock], limit: int, plan_end: int) -> Span | None:
    """The last review before the limit, which is the answer or the end, that no tool call follows."""
    for start, block, turn in reversed(blocks):
        if start < limit and turn.call is not None:
            return None
        if block.name == REVIEW and plan_end <= start < limit:
            return Span(start, start + block.end - block.start)
    return None


def _last_thought_before(blocks: Sequence[PlacedBlock], review: Span, plan_end: int) -> int:
    """The start of the last thought since the last tool call, review or plan; without one, the review's own."""
    for start, block, _ in reversed(blocks):
        if start >= review.start:
            continue
        if start < plan_end or block.name in (REVIEW, CALL_TOOL):
            return review.start
        if block.name == THINK:
            return start
    return review.start
