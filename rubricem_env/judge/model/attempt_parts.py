"""The parts of an attempt by who wrote them, and how a long attempt is shortened: the least telling parts go first.

Of a rank that does not fit, all parts are cut to the same length; where that would leave too little of each, the
oldest are left out. What is left out is marked with its length.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import groupby
from typing import NamedTuple

from rubricem_env.domain.base import Span
from rubricem_env.domain.trajectory import Origin
from rubricem_env.judge.model.repeats import leave_out
from rubricem_env.scaffold.grammar import SNIPPET
from rubricem_env.scaffold.parsed import ParsedTrajectory
from rubricem_env.scaffold.untrusted import inert_tool_text

_SHOWN_SNIPPET = re.compile(rf'<{SNIPPET} id="(?P<id>[^"<>]*)">.*?</{SNIPPET}>', re.DOTALL)
_MARK = "[... {chars} characters left out ...]"
_MARK_LENGTH = 45
"""No mark is longer, so a shorter text is not cut."""


class Rank(IntEnum):
    """What goes first where an attempt is too long."""

    PAGE = 0
    """Tool text that the answer does not cite."""
    STEP = 1
    """Thoughts, calls, and text outside of blocks."""
    BLOCK = 2
    """The blocks of the stages before the answer: the plan, what was weighed after each result, the review."""
    CITED = 3
    """The snippets that the answer cites."""
    ANSWER = 4


_LEAST = {Rank.PAGE: 1_000, Rank.STEP: 200, Rank.BLOCK: 200, Rank.CITED: 200, Rank.ANSWER: 200}
"""Characters to which a part is cut before another one is left out."""


class Part(NamedTuple):
    """A part of the attempt."""

    stage: str
    author: Origin
    text: str
    rank: Rank
    segment: int
    """The number of the segment. Parts of one turn or observation belong together."""
    left_out: int = 0
    """Its length where it is left out; then it has no text."""


def parts_of(parsed: ParsedTrajectory, *, repeats: tuple[Span, ...] = ()) -> Iterator[Part]:
    """The policy's and the tools' text in order, without what `repeats` covers.

    Joined by segment and stage they are the text. The snippets that the answer cites stand apart.
    """
    blocks = _own_blocks(parsed)
    offset = 0
    for number, segment in enumerate(parsed.trajectory.segments):
        if segment.origin is Origin.POLICY:
            end = offset + len(segment.text)
            for stage, span in parsed.spans.items():
                own = Span(max(span.start, offset), min(span.end, end))
                if own.end <= own.start or not leave_out(repeats, parsed.policy_text, within=own).strip():
                    continue
                for rank, piece in _ranked(blocks, own, has_answer=stage == parsed.stages[-1]):
                    text = leave_out(repeats, parsed.policy_text, within=piece)
                    yield Part(stage, Origin.POLICY, text, rank, number)
            offset = end
        elif segment.origin is Origin.TOOL:
            # The stage of the last character before it: the one that made the tool call.
            spans = parsed.spans.items()
            stage = next((stage for stage, span in spans if span.start < offset <= span.end), parsed.scaffold.working)
            for rank, text in _tool_parts(inert_tool_text(segment, parsed.scaffold), parsed.citations.known):
                yield Part(stage, Origin.TOOL, text, rank, number)


class _OwnBlock(NamedTuple):
    """A block of a stage, where it stands in the policy's text."""

    start: int
    end: int
    is_answer: bool


def _own_blocks(parsed: ParsedTrajectory) -> list[_OwnBlock]:
    """In order."""
    answer = parsed.scaffold.answer_tag
    made = (*parsed.scaffold.blocks, answer)
    return [
        _OwnBlock(at, at + block.end - block.start, block.name == answer)
        for at, block, _ in parsed.blocks
        if block.name in made
    ]


def _ranked(blocks: Sequence[_OwnBlock], own: Span, *, has_answer: bool) -> Iterator[tuple[Rank, Span]]:
    """The blocks within a span, and what stands between them. What is shorter than a mark goes with a block."""
    first = bisect_right(blocks, own.start, key=lambda block: block.end)
    done = own.start
    for block in blocks[first:]:
        if block.start >= own.end:
            break
        start = block.start if block.start - done > _MARK_LENGTH else done
        if start > done:
            yield Rank.STEP, Span(done, start)
        done = min(block.end, own.end)
        yield Rank.ANSWER if block.is_answer and has_answer else Rank.BLOCK, Span(start, done)
    if done < own.end:
        yield Rank.STEP, Span(done, own.end)


def _tool_parts(text: str, cited: Collection[str]) -> Iterator[tuple[Rank, str]]:
    """The cited snippets of an observation, and what stands between them. What is shorter than a mark goes with one."""
    done = 0
    for snippet in _SHOWN_SNIPPET.finditer(text):
        if snippet["id"] in cited:
            start = snippet.start() if snippet.start() - done > _MARK_LENGTH else done
            if start > done:
                yield Rank.PAGE, text[done:start]
            done = snippet.end()
            yield Rank.CITED, text[start:done]
    yield (Rank.CITED if done and len(text) - done <= _MARK_LENGTH else Rank.PAGE), text[done:]


def shorten_middle(text: str, limit: int) -> str:
    """The head and tail of a long text, with the number of characters left out between them."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    return f"{text[: limit - tail]} {mark(len(text) - limit)} {text[len(text) - tail :]}"


def mark(chars: int) -> str:
    """What stands where so many characters were left out."""
    return _MARK.format(chars=chars)


def join_parts(parts: Iterable[Part]) -> str:
    """The text of parts that belong together, marked where some of them are left out."""
    written = []
    for is_left_out, run in groupby(parts, key=lambda part: part.left_out > 0):
        joined = list(run)
        if is_left_out:
            written.append(f" {mark(sum(part.left_out for part in joined))} ")
        else:
            written.append("".join(part.text for part in joined))
    return "".join(written)


class _Tried(NamedTuple):
    """A form that was measured."""

    level: int
    chars: int
    room: int


def fit_parts(
    parts: Sequence[Part],
    room: Callable[[Sequence[Part]], int],
    *,
    ranks: Sequence[Rank] = tuple(Rank),
    spare: int = 0,
) -> tuple[Part, ...]:
    """The longest form that fits, with the parts of `ranks` shortened, the first rank first.

    `room` measures a form: how much more would fit, below 0 how much it is too long. Measuring is taken to be dear and
    room to shrink nearly evenly with the characters. With `spare`, a form that has room for no more than that is long
    enough. Where none fits, it is the one that has nothing of those parts.
    """
    ladder = [_Rung(parts, rank) for rank in reversed(ranks)]

    def at(level: int) -> tuple[Part, ...]:
        """The last rank gets what it needs first, and those before it what is left over."""
        shown = list(parts)
        for rung in ladder:
            given = min(level, rung.height)
            level -= given
            for place, index in enumerate(rung.indices):
                shown[index] = rung.cut(parts[index], place, given)
        return tuple(shown)

    def chars(level: int) -> int:
        return _chars(at(level))

    def tried(level: int) -> _Tried:
        form = at(level)
        return _Tried(level, _chars(form), room(form))

    fitting, failing = tried(0), sum(rung.height for rung in ladder) + 1
    # A character takes at most one of the room, or this guess fails and the next is better.
    slope, halves = -1.0, False
    while fitting.room > spare and failing - fitting.level > 1:
        span = range(fitting.level + 1, failing)
        aimed = fitting.chars - fitting.room / slope
        middle = (fitting.level + failing) // 2
        level = middle if halves else span[min(max(bisect_right(span, aimed, key=chars) - 1, 0), len(span) - 1)]
        form = tried(level)
        if form.chars > fitting.chars and form.room < fitting.room:
            slope = (form.room - fitting.room) / (form.chars - fitting.chars)
        # Where a guess was a bad one, the next form is the one in the middle.
        halves = form.room > fitting.room // 2 or (form.room < 0 and level - fitting.level > len(span) // 2)
        fitting, failing = (form, failing) if form.room >= 0 else (fitting, level)
    return at(fitting.level)


def _chars(form: Sequence[Part]) -> int:
    return sum(len(part.text) for part in form)


class _Rung:
    """The parts of one rank, and how many characters of them each level leaves: of the latest first, then of all."""

    def __init__(self, parts: Sequence[Part], rank: Rank) -> None:
        self.indices = [index for index, part in reversed([*enumerate(parts)]) if part.rank is rank]
        """From the latest on."""
        self._least = _LEAST[rank]
        longest = max((len(parts[index].text) for index in self.indices), default=0)
        self.height = len(self.indices) * max(self._least, longest)

    def cut(self, part: Part, place: int, level: int) -> Part:
        """The part, which is at that place from the latest on, as a level leaves it."""
        each = level // len(self.indices)
        limit = each if each >= self._least else min(self._least, level - place * self._least)
        if limit <= 0:
            return part._replace(text="", left_out=len(part.text))
        if len(part.text) <= limit + _MARK_LENGTH:
            return part
        return part._replace(text=shorten_middle(part.text, limit))
