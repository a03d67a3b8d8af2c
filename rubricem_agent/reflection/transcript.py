"""An attempt as the reflecting policy reads it, shortened to fit: tool text first, then the policy's own steps.

The answer is never shortened, and the reference block that the attempt was given is not shown.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rubricem_agent.reflection.errors import ReflectionError
from rubricem_env.domain.span import Span
from rubricem_env.domain.stage import Stage
from rubricem_env.domain.trajectory import Origin
from rubricem_env.judge.render import shorten_middle
from rubricem_env.scaffold.neutralize import neutralize
from rubricem_env.scaffold.reading import Reading

_CHAT_SPECIAL = re.compile(r"<(\\*)\|")


class _Piece(NamedTuple):
    text: str
    is_tool: bool = False
    is_answer: bool = False


def render_transcript(reading: Reading, fits: Callable[[str], bool]) -> str:
    """The longest form of the attempt that fits; each part that is cut keeps its head and its tail.

    Raises:
        ReflectionError: it does not fit even with nothing left but the answer.
    """
    pieces = tuple(_pieces(reading))
    longest = max((len(piece.text) for piece in pieces), default=0)
    whole = _render(pieces, tool_chars=longest, own_chars=longest)
    if fits(whole):
        return whole
    limit = _greatest(longest, lambda chars: fits(_render(pieces, tool_chars=chars, own_chars=longest)))
    if limit is not None:
        return _render(pieces, tool_chars=limit, own_chars=longest)
    limit = _greatest(longest, lambda chars: fits(_render(pieces, tool_chars=0, own_chars=chars)))
    if limit is not None:
        return _render(pieces, tool_chars=0, own_chars=limit)
    raise ReflectionError("the question and the answer alone are longer than the reflection prompt may be.")


def _render(pieces: Sequence[_Piece], *, tool_chars: int, own_chars: int) -> str:
    """Everything in order; at most so many characters of each tool's text and of each step of the policy."""
    parts = []
    for piece in pieces:
        limit = len(piece.text) if piece.is_answer else tool_chars if piece.is_tool else own_chars
        shown = shorten_middle(piece.text, limit).strip()
        parts.append(f"<tool_output>\n{shown}\n</tool_output>" if piece.is_tool else shown)
    return "\n\n".join(part for part in parts if part)


def _greatest(high: int, holds: Callable[[int], bool]) -> int | None:
    """The greatest number from 0 to `high` for which it holds; None where it does not hold for 0."""
    if not holds(0):
        return None
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def _pieces(reading: Reading) -> Iterator[_Piece]:
    offset = 0
    for segment in reading.trajectory.segments:
        if segment.origin is Origin.POLICY:
            yield from _policy_pieces(reading, Span(offset, offset + len(segment.text)))
            offset += len(segment.text)
        elif segment.origin is Origin.TOOL:
            # Our own observations are defused already; those of other people's files may not be.
            yield _Piece(segment.text if segment.observation is not None else neutralize(segment.text), is_tool=True)


def _policy_pieces(reading: Reading, within: Span) -> Iterator[_Piece]:
    """A segment cut where the answer begins, so that steps can be shortened and the answer stays."""
    begins = next((span.start for span in reading.spans.of(Stage.ANSWER)), within.end)
    cut = min(max(begins, within.start), within.end)
    for span, is_answer in ((Span(within.start, cut), False), (Span(cut, within.end), True)):
        text = _CHAT_SPECIAL.sub(r"<\\\1|", span.of(reading.policy_text))
        if text.strip():
            yield _Piece(text, is_answer=is_answer)
