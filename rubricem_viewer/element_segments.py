"""Splits a trajectory into its elements, each with its author and its offset in the policy's text."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.domain.trajectory import Origin, Segment, ToolCall
from rubricem_env.scaffold.grammar import CALL_TOOL, PLAN, REVIEW, STATE_EVALUATION, THINK, grammar_of
from rubricem_env.scaffold.parsed import ParsedTrajectory
from rubricem_env.scaffold.turn import Block, Turn
from rubricem_records.rollouts.stage_lookup import stage_lookup
from rubricem_viewer.api.trajectories import ElementKind

_KINDS: dict[str, ElementKind] = {
    THINK: "think",
    PLAN: "plan",
    STATE_EVALUATION: "state_evaluation",
    REVIEW: "review",
    CALL_TOOL: "call",
}
"""Of the tags that have a kind of their own."""

_FRAME = re.compile(r"^\s*<tool_output[^>]*>\n?|\n?</tool_output>\s*$")


class ElementSection(NamedTuple):
    """A named part of an element, such as the goal of a plan."""

    name: str
    start: int
    """Where its text begins in the element's text."""
    end: int


class ElementSegment(NamedTuple):
    """One element of a trajectory before it is put into the words of the API."""

    kind: ElementKind
    text: str
    turn: int
    stage: str | None = None
    start: int = -1
    """Where its text begins in the policy's text; -1 for what is no part of that."""
    is_closed: bool = True
    sections: tuple[ElementSection, ...] = ()
    """The parts of a plan or a review."""
    name: str = ""
    """The tag of a block that has no kind of its own."""
    call: ToolCall | None = None
    segment: Segment | None = None
    """The recorded segment of a tool's answer."""

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def cut_trajectory(parsed: ParsedTrajectory) -> tuple[ElementSegment, ...]:
    """All pieces in the order of the record."""
    stage_at = stage_lookup(parsed.spans, parsed.scaffold.working)
    pieces: list[ElementSegment] = []
    turns = parsed.turns
    number = 0
    turn_start = 0
    position = 0
    for segment in parsed.trajectory.segments:
        last_stage = stage_at(max(turn_start - 1, 0))
        if segment.origin is Origin.PROMPT:
            pieces.append(ElementSegment("prompt", segment.text, 0))
        elif segment.origin is Origin.TOOL:
            is_notice = segment.observation is not None and segment.observation.status is None
            kind: ElementKind = "notice" if is_notice else "result"
            text = _FRAME.sub("", segment.text)
            pieces.append(ElementSegment(kind, text, number, last_stage, segment=segment))
        else:
            position += len(segment.text)
            while number < len(turns) and turn_start < position:
                pieces += _cut_turn(turns[number], turn_start, stage_at, parsed.scaffold)
                turn_start += len(turns[number].text)
                number += 1
            if segment.cut:
                pieces.append(ElementSegment("cut", segment.cut, number, stage_at(max(turn_start - 1, 0))))
    return tuple(pieces)


def _cut_turn(turn: Turn, begin: int, stage_at: Callable[[int], str], scaffold: Scaffold) -> Iterator[ElementSegment]:
    """The blocks of a turn, and the text between them."""

    def loose(start: int, end: int) -> Iterator[ElementSegment]:
        start, end = _stripped(turn.text, start, end)
        if start < end:
            yield ElementSegment("text", turn.text[start:end], turn.number, stage_at(begin + start), begin + start)

    done = 0
    for block in turn.blocks:
        yield from loose(done, block.start)
        start, end = _stripped(turn.text, block.inner_start, block.inner_end)
        kind = _kind(block.name, scaffold)
        yield ElementSegment(
            kind,
            turn.text[start:end],
            turn.number,
            stage_at(begin + block.start),
            start=begin + start,
            is_closed=block.is_closed,
            name=block.name if kind == "block" else "",
            sections=tuple(_section(turn.text, part, start) for part in block.sections),
            call=turn.call if kind == "call" else None,
        )
        done = block.end
    yield from loose(done, len(turn.text))


def _kind(tag: str, scaffold: Scaffold) -> ElementKind:
    if tag == scaffold.answer_tag:
        return "answer"
    is_block = grammar_of(scaffold).roles.get(tag) == "block"
    return _KINDS.get(tag, "block" if is_block else "text")


def _section(text: str, block: Block, origin: int) -> ElementSection:
    start, end = _stripped(text, block.inner_start, block.inner_end)
    return ElementSection(block.name, start - origin, end - origin)


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """The same range without blanks at its ends."""
    inner = text[start:end]
    start += len(inner) - len(inner.lstrip())
    return start, start + len(inner.strip())
