"""Where the four stages lie in the policy's text: one function for the tokens and for what the judge reads.

The judge prompt of the paper (section C.3) settles what the main text leaves open (choices A4-A8):
- Plan: from the start through the end of the first structured plan, if it comes before the first tool call.
- Research: from there to the review. Revised plans, and reviews that a further tool call follows, are Research.
- Review: the last review with no tool call after it, from the last thought before it.
- Answer: all that follows the review once there is an answer; without a review, from the opening tag.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from rubricem_env.domain.span import Span, StageSpans
from rubricem_env.scaffold.grammar import ANSWER, CALL_TOOL, PLAN, REVIEW, THINK
from rubricem_env.scaffold.turn import Block, Turn

ReviewStart = Literal["think", "review_tag"]
"""Where the Review stage begins; the final state evaluation goes with it under "think"."""


class _Placed(NamedTuple):
    """A block with its offsets in the policy's whole text."""

    block: Block
    start: int
    end: int


def find_boundaries(turns: Sequence[Turn], *, review_start: ReviewStart = "think") -> StageSpans:
    """Partition the turns' joined text into stages; a stage that never happened gets no span."""
    offsets = _offsets(turns)
    size = offsets[-1]
    plan_end = _plan_end(turns, offsets)
    answer = _find_answer(turns, offsets)
    review = _find_review(turns, offsets, answer, plan_end)
    begins = size if answer is None else answer.start
    if review is None:
        cuts = (0, plan_end, begins, begins, size)
    else:
        review_from = review.start
        if review_start == "think":
            review_from = _last_thought_before(turns, offsets, review, plan_end)
        cuts = (0, plan_end, review_from, size if answer is None else review.end, size)
    spans = [(Span(start, end),) if end > start else () for start, end in pairwise(cuts)]
    return StageSpans(*spans)


def _offsets(turns: Sequence[Turn]) -> list[int]:
    """Where each turn begins in the joined text, and where the last one ends."""
    offsets = [0]
    for turn in turns:
        offsets.append(offsets[-1] + len(turn.text))
    return offsets


def _plan_end(turns: Sequence[Turn], offsets: Sequence[int]) -> int:
    """The end of the first plan; 0 where none comes before the first tool call."""
    for turn, offset in zip(turns, offsets, strict=False):
        plan = turn.first(PLAN)
        if plan is not None:
            return offset + plan.end
        if turn.has_action:
            return 0
    return 0


def _find_answer(turns: Sequence[Turn], offsets: Sequence[int]) -> _Placed | None:
    """The answer that ends the episode, or the unclosed one in which the text breaks off."""
    for turn, offset in zip(turns, offsets, strict=False):
        if turn.answer is not None:
            return _Placed(turn.answer, offset + turn.answer.start, offset + turn.answer.end)
    if turns:
        unclosed = turns[-1].last(ANSWER)
        if unclosed is not None:
            return _Placed(unclosed, offsets[-2] + unclosed.start, offsets[-2] + unclosed.end)
    return None


def _find_review(
    turns: Sequence[Turn], offsets: Sequence[int], answer: _Placed | None, plan_end: int
) -> _Placed | None:
    """The last review before the answer, or before the end, that no tool call follows."""
    limit = offsets[-1] if answer is None else answer.start
    for index in range(len(turns) - 1, -1, -1):
        turn, offset = turns[index], offsets[index]
        if offset > limit:
            continue
        if turn.call is not None:
            return None
        for block in reversed(turn.blocks):
            if block.name == REVIEW and plan_end <= offset + block.start < limit:
                return _Placed(block, offset + block.start, offset + block.end)
    return None


def _last_thought_before(turns: Sequence[Turn], offsets: Sequence[int], review: _Placed, plan_end: int) -> int:
    """The start of the last thought since the last tool call, review or plan; without one, the review's own."""
    for index in range(len(turns) - 1, -1, -1):
        turn, offset = turns[index], offsets[index]
        for block in reversed(turn.blocks):
            start = offset + block.start
            if start >= review.start:
                continue
            if start < plan_end or block.name in (REVIEW, CALL_TOOL):
                return review.start
            if block.name == THINK:
                return start
    return review.start
