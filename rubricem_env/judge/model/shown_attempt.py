"""What a judge model is shown of an attempt: its stages as JSON, within a limit of tokens."""

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

from rubricem_env.domain.base import Span
from rubricem_env.domain.trajectory import Origin
from rubricem_env.judge.model.repeats import find_repeats, leave_out
from rubricem_env.scaffold.grammar import SNIPPET
from rubricem_env.scaffold.parsed import ParsedTrajectory
from rubricem_env.scaffold.untrusted import inert_tool_text
from rubricem_env.tools.render import estimate_tokens

TRUNCATED = "[truncated]"
QUESTION_CHARS = 20_000
"""The most characters that a judge is shown of a question. Longer text keeps its head and its tail."""
TRAJECTORY_TOKENS = 24_576
"""How many tokens are shown of one attempt: more than the paper's 18,432 tokens of a response."""
GROUP_TOKENS = 196_608
"""How many tokens are shown of all attempts of a group together."""


class _Piece(NamedTuple):
    """A part of the attempt. Parts of a low rank are shortened first: pages, own steps, cited snippets, the answer."""

    stage: str
    author: Origin
    text: str
    rank: int
    segment: int
    """The number of the segment. Parts of one observation belong together."""


_PAGE, _STEP, _CITED, _ANSWER = range(4)
_SHOWN_SNIPPET = re.compile(rf'<{SNIPPET} id="(?P<id>[^"<>]*)">.*?</{SNIPPET}>', re.DOTALL)


def render_stages(parsed: ParsedTrajectory, *, tokens: int = TRAJECTORY_TOKENS) -> dict[str, Any]:
    """Each stage as a list of {"agent": text} and {"tool_output": text}; None where the stage never happened.

    What is longer than the limit is shortened from the lowest rank up, in equal proportion within a rank, with a note
    of how much was left out. Tokens are estimated.
    """
    pieces = _shorten_to(list(_pieces(parsed)), tokens)
    stages: dict[str, Any] = {}
    for stage in parsed.stages:
        of_stage = (piece for piece in pieces if piece.stage == stage)
        own = groupby(of_stage, key=lambda piece: (piece.author, piece.segment))
        shown = [
            {"agent" if author is Origin.POLICY else "tool_output": "".join(part.text for part in parts)}
            for (author, _), parts in own
        ]
        stages[stage] = shown if parsed.happened(stage) else None
        if stages[stage] and parsed.is_truncated(stage):
            stages[stage].append({"note": TRUNCATED})
    return stages


def _shorten_to(pieces: list[_Piece], tokens: int) -> list[_Piece]:
    """The pieces within the limit: the highest rank gets what it needs first, and the last one to be served a share."""
    left = tokens
    shares = {}
    for rank in (_ANSWER, _CITED, _STEP, _PAGE):
        needed = sum(estimate_tokens(piece.text) for piece in pieces if piece.rank == rank)
        shares[rank] = min(1.0, left / needed) if needed else 1.0
        left = max(0, left - needed)
    return [
        piece._replace(text=shorten_middle(piece.text, int(len(piece.text) * shares[piece.rank]))) for piece in pieces
    ]


def shorten_middle(text: str, limit: int) -> str:
    """The head and tail of a long text, with the number of characters left out between them."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    return f"{text[: limit - tail]} [... {len(text) - limit} characters left out ...] {text[len(text) - tail :]}"


def _pieces(parsed: ParsedTrajectory) -> Iterator[_Piece]:
    """The policy's and the tools' text in order.

    The snippets that the answer cites stand apart within an observation.
    """
    repeats = find_repeats(parsed)
    offset = 0
    for number, segment in enumerate(parsed.trajectory.segments):
        if segment.origin is Origin.POLICY:
            end = offset + len(segment.text)
            for stage, span in parsed.spans.items():
                own = Span(max(span.start, offset), min(span.end, end))
                text = leave_out(repeats, parsed.policy_text, within=own) if own.end > own.start else ""
                if text.strip():
                    yield _Piece(stage, Origin.POLICY, text, _ANSWER if stage == parsed.stages[-1] else _STEP, number)
            offset = end
        elif segment.origin is Origin.TOOL:
            # The stage of the last character before it: the one that made the tool call.
            spans = parsed.spans.items()
            stage = next((stage for stage, span in spans if span.start < offset <= span.end), parsed.scaffold.working)
            text = inert_tool_text(segment, parsed.scaffold)
            begin = 0
            for snippet in _SHOWN_SNIPPET.finditer(text):
                if snippet["id"] in parsed.citations.known:
                    yield _Piece(stage, Origin.TOOL, text[begin : snippet.start()], _PAGE, number)
                    yield _Piece(stage, Origin.TOOL, snippet[0], _CITED, number)
                    begin = snippet.end()
            yield _Piece(stage, Origin.TOOL, text[begin:], _PAGE, number)
