"""A trajectory cut into its pieces, in order: what each is, who wrote it, and where it lies in the policy's text."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rubricem_agent.rollout.tokens import stage_map
from rubricem_agent.viewer.api_models.trajectories import ElementKind
from rubricem_env.domain.stage import Stage
from rubricem_env.domain.tool import ToolCall
from rubricem_env.domain.trajectory import Origin, Segment
from rubricem_env.scaffold.grammar import ANSWER, CALL_TOOL, PLAN, REVIEW, STATE_EVALUATION, THINK
from rubricem_env.scaffold.reading import Reading
from rubricem_env.scaffold.turn import Block, Turn

_KINDS: dict[str, ElementKind] = {
    THINK: "think",
    PLAN: "plan",
    STATE_EVALUATION: "state_evaluation",
    REVIEW: "review",
    CALL_TOOL: "call",
    ANSWER: "answer",
}
_FRAME = re.compile(r"^\s*<tool_output[^>]*>\n?|\n?</tool_output>\s*$")


class Section(NamedTuple):
    """A part of a plan or a review, in the text of its piece."""

    name: str
    start: int
    end: int


class Piece(NamedTuple):
    """One element of a trajectory before it is put into the words of the API."""

    kind: ElementKind
    text: str
    turn: int
    stage: Stage | None = None
    start: int = -1
    """Where its text begins in the policy's text; -1 for what is no part of that."""
    is_closed: bool = True
    sections: tuple[Section, ...] = ()
    call: ToolCall | None = None
    segment: Segment | None = None
    """Of a tool's answer."""

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def cut_trajectory(reading: Reading) -> tuple[Piece, ...]:
    """All pieces in the order of the record."""
    cutter = _Cutter(reading)
    return tuple(piece for segment in reading.trajectory.segments for piece in cutter.cut(segment))


class _Cutter:
    """Walks the segments, with each turn where its first one stands."""

    def __init__(self, reading: Reading) -> None:
        self._turns = reading.turns
        self._stages = stage_map(reading.spans)
        self._next = 0
        self._turn_start = 0
        self._position = 0

    def cut(self, segment: Segment) -> Iterator[Piece]:
        number = self._next
        if segment.origin is Origin.PROMPT:
            yield Piece("prompt", segment.text, 0)
        elif segment.origin is Origin.TOOL:
            is_notice = segment.observation is not None and segment.observation.status is None
            text = _FRAME.sub("", segment.text)
            yield Piece("notice" if is_notice else "result", text, number, self._last_stage(), segment=segment)
        else:
            self._position += len(segment.text)
            while self._next < len(self._turns) and self._turn_start < self._position:
                yield from self._turn(self._turns[self._next])
            if segment.cut:
                yield Piece("cut", segment.cut, self._next, self._last_stage())

    def _turn(self, turn: Turn) -> Iterator[Piece]:
        begin = self._turn_start
        self._next += 1
        self._turn_start += len(turn.text)
        at = 0
        for block in turn.blocks:
            yield from self._loose(turn, at, block.start, begin=begin)
            yield self._block(turn, block, begin=begin)
            at = block.end
        yield from self._loose(turn, at, len(turn.text), begin=begin)

    def _block(self, turn: Turn, block: Block, *, begin: int) -> Piece:
        start, end = _stripped(turn.text, block.inner_start, block.inner_end)
        kind = _KINDS.get(block.name, "text")
        return Piece(
            kind,
            turn.text[start:end],
            turn.number,
            self._stages.at(begin + block.start),
            begin + start,
            block.is_closed,
            tuple(_section(turn.text, part, start) for part in block.sections),
            turn.call if kind == "call" else None,
        )

    def _loose(self, turn: Turn, start: int, end: int, *, begin: int) -> Iterator[Piece]:
        """Text between the blocks, where there is any."""
        start, end = _stripped(turn.text, start, end)
        if start < end:
            yield Piece("text", turn.text[start:end], turn.number, self._stages.at(begin + start), begin + start)

    def _last_stage(self) -> Stage:
        return self._stages.at(max(self._turn_start - 1, 0))


def _section(text: str, block: Block, origin: int) -> Section:
    start, end = _stripped(text, block.inner_start, block.inner_end)
    return Section(block.name, start - origin, end - origin)


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """The same range without blanks at its ends."""
    inner = text[start:end]
    start += len(inner) - len(inner.lstrip())
    return start, start + len(inner.strip())


def stage_runs(pieces: Sequence[Piece]) -> Iterator[tuple[Stage, int, int]]:
    """Stretches of pieces of one stage: the stage, the first piece and the last."""
    first = 0
    for number, piece in enumerate(pieces):
        if number + 1 < len(pieces) and pieces[number + 1].stage is piece.stage:
            continue
        if piece.stage is not None:
            yield piece.stage, first, number
        first = number + 1
