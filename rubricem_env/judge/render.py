"""What a judge sees of a trajectory: its stages as JSON, tool text shortened, the bank's reference block left out.

The prompt segment is never shown, so a rubric cannot leak from the bank into the judge. Stage text is cut where
`scaffold.boundaries` cuts it for the tokens.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.span import Span
from rubricem_env.domain.stage import STAGES, Stage
from rubricem_env.domain.trajectory import Origin
from rubricem_env.judge.references import find_repeats, leave_out
from rubricem_env.scaffold.neutralize import neutralize
from rubricem_env.scaffold.reading import Reading

TRUNCATED = "[truncated]"
_CHAT_SPECIAL = re.compile(r"<(\\*)\|")
Limit = Annotated[int, Field(ge=100)]


class RenderBudget(Frozen):
    """The most characters that a judge is shown of each part; what is longer keeps its head and its tail."""

    tool_chars: Limit = 1_500
    """Of one observation."""
    stage_chars: Limit = 40_000
    """Of one stage, tool text included."""
    question_chars: Limit = 20_000


SCORING_BUDGET = RenderBudget()
CONTRAST_BUDGET = RenderBudget(tool_chars=600, stage_chars=12_000)
"""Smaller, because a whole group stands in one prompt."""


class _Piece(NamedTuple):
    stage: Stage
    by: Origin
    text: str


def render_stages(reading: Reading, budget: RenderBudget) -> dict[str, Any]:
    """Each stage as a list of {"agent": text} and {"tool_output": text}; None where it never happened."""
    pieces = list(_pieces(reading, budget))
    stages: dict[str, Any] = {}
    for stage in STAGES:
        own = [piece for piece in pieces if piece.stage is stage]
        stages[stage.value] = _fit(own, budget.stage_chars) if reading.happened(stage) else None
        if stages[stage.value] and reading.breaks_off(stage):
            stages[stage.value].append({"note": TRUNCATED})
    return stages


def shorten_middle(text: str, limit: int) -> str:
    """Head and tail of a text, with the number of characters left out between them."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    head = limit - tail
    return f"{text[:head]} [... {len(text) - limit} characters left out ...] {text[len(text) - tail :]}"


def _pieces(reading: Reading, budget: RenderBudget) -> Iterator[_Piece]:
    """Policy and tool text in order, each with the stage that it belongs to."""
    repeats = find_repeats(reading)
    offset = 0
    for segment in reading.trajectory.segments:
        if segment.origin is Origin.POLICY:
            end = offset + len(segment.text)
            for stage in STAGES:
                yield from _policy_pieces(reading, stage, within=Span(offset, end), repeats=repeats)
            offset = end
        elif segment.origin is Origin.TOOL:
            # Our own observations are defused already; those of other people's files may not be.
            text = segment.text if segment.observation is not None else neutralize(segment.text)
            yield _Piece(_stage_before(reading, offset), Origin.TOOL, shorten_middle(text, budget.tool_chars))


def _policy_pieces(reading: Reading, stage: Stage, *, within: Span, repeats: tuple[Span, ...]) -> Iterator[_Piece]:
    for span in reading.spans.of(stage):
        own = Span(max(span.start, within.start), min(span.end, within.end))
        text = leave_out(repeats, reading.policy_text, within=own) if own.end > own.start else ""
        if text.strip():
            yield _Piece(stage, Origin.POLICY, _CHAT_SPECIAL.sub(r"<\\\1|", text))


def _stage_before(reading: Reading, offset: int) -> Stage:
    """The stage of the last character that the policy wrote before a tool answered: the one that made the call."""
    return next(
        (stage for stage in STAGES for span in reading.spans.of(stage) if span.start < offset <= span.end),
        Stage.RESEARCH,
    )


def _fit(pieces: list[_Piece], limit: int) -> list[dict[str, str]]:
    """The pieces within the limit: tool text gives way first, then the agent's own, in equal measure."""
    own = sum(len(piece.text) for piece in pieces if piece.by is Origin.POLICY)
    foreign = sum(len(piece.text) for piece in pieces if piece.by is Origin.TOOL)
    tool_share = 1.0 if own + foreign <= limit else max(0.0, (limit - own) / max(1, foreign))
    own_share = min(1.0, limit / max(1, own))
    rendered = []
    for piece in pieces:
        name, share = ("agent", own_share) if piece.by is Origin.POLICY else ("tool_output", tool_share)
        rendered.append({name: shorten_middle(piece.text, int(len(piece.text) * share))})
    return rendered
