"""Renders a tool's result as the text that the policy reads: numbered snippets, neutralized and limited in tokens.

`<tool_output>` delimits untrusted text. Foreign text cannot close it, because every scaffold tag in it gets a
backslash. The tag is short because each observation pays for its tokens.
"""

from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.trajectory import Snippet, Source, ToolResult, ToolStatus
from rubricem_env.scaffold.grammar import SNIPPET, TOOL_OUTPUT
from rubricem_env.scaffold.untrusted import neutralize

TokenCount = Callable[[str], int]
CUT = " [cut]"


def estimate_tokens(text: str) -> int:
    """A rough count without a tokenizer: four bytes a token, rounded up."""
    return ((len(text) if text.isascii() else len(text.encode("utf-8", "replace"))) + 3) // 4


def cap_text(text: str, max_tokens: int, count: TokenCount) -> str:
    """The text if it is short enough, else its beginning and ` [cut]`; never more than `max_tokens` besides that mark.

    `count` must not fall when text grows.
    """
    # No tokenizer uses more than one token for a byte, so a short text needs no count; none puts more than 64
    # characters into one token, so the text after that many is not read.
    if len(text) * 4 <= max_tokens:
        return text
    head = text[: max_tokens * 64]
    if len(head) == len(text) and count(text) <= max_tokens:
        return text
    low, high = 0, len(head)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(head[:middle]) <= max_tokens else (low, middle - 1)
    return head[:low].rstrip() + CUT


NO_RESULTS = (
    "No results. Nothing was found for this query; try other words or another tool, and do not invent a source."
)
_Tokens = Annotated[int, Field(ge=16)]


class ObservationCaps(Frozen):
    """Limits of foreign text in tokens: ten full observations leave a third of the paper's 18,432 to the policy."""

    snippet: _Tokens = 300
    """The most tokens of one snippet, with its title and address."""
    summary: _Tokens = 600
    total: _Tokens = 1_200
    """The most tokens of one observation."""


CAPS = ObservationCaps()
_LEAST = 16
"""A snippet with fewer tokens says nothing and is left out."""


def render_observation(
    result: ToolResult,
    *,
    first_id: int,
    notices: tuple[str, ...] = (),
    caps: ObservationCaps = CAPS,
    count_tokens: TokenCount = estimate_tokens,
) -> tuple[str, tuple[str, ...]]:
    """The text for the policy, and the ids of the snippets that it may now cite.

    Snippets are numbered from `first_id` on, foreign text is neutralized, and the environment's notices
    are added. A snippet without room is not shown and gets no id; the number of these is shown.
    """
    lines = (
        [neutralize(cap_text(result.summary, min(caps.summary, caps.total), count_tokens))] if result.summary else []
    )
    bodies = _fit(result.snippets, caps.snippet, count_tokens, room=caps.total - sum(map(count_tokens, lines)))
    ids = tuple(f"S_{first_id + index}" for index in range(len(bodies)))
    lines += [f'<{SNIPPET} id="{snippet_id}">{body}</{SNIPPET}>' for snippet_id, body in zip(ids, bodies, strict=True)]
    left_out = len(result.snippets) - len(bodies)
    if left_out:
        lines.append(f"{left_out} more left out for length.")
    lines += _state(result, is_bare=not lines)
    return _wrap([*lines, *notices]), ids


def render_notice(notice: str) -> str:
    """A message of the environment itself; nothing was executed."""
    return _wrap([notice])


def _state(result: ToolResult, *, is_bare: bool) -> list[str]:
    if result.status.is_error:
        message = neutralize(cap_text(result.message, 100, estimate_tokens)) or "no reason given."
        return [f"The call failed ({result.status.value}): {message}"]
    return [NO_RESULTS] if result.status is ToolStatus.EMPTY or is_bare else []


def _fit(snippets: tuple[Snippet, ...], limit: int, count: TokenCount, *, room: int) -> list[str]:
    """The snippets' texts, each within its limit, as many as fit."""
    bodies: list[str] = []
    for snippet in snippets:
        if room < _LEAST:
            break
        source = Source.of(snippet)
        head = " | ".join(filter(None, (source.title, source.url)))
        written = f"{head}\n{snippet.text}" if head else snippet.text
        body = neutralize(cap_text(written, min(limit, room), count))
        bodies.append(body)
        room -= count(body)
    return bodies


def _wrap(lines: list[str]) -> str:
    inner = "\n".join(lines)
    return f"<{TOOL_OUTPUT}>\n{inner}\n</{TOOL_OUTPUT}>"


def plain_text(result: ToolResult) -> str:
    """A result for a person, or for a client that reads only text."""
    if result.status.is_error:
        return f"{result.status.value}: {result.message}"
    heads = [" | ".join(part for part in (snippet.title, snippet.url) if part) for snippet in result.snippets]
    snippets = [
        f"{head}\n{each.text}" if head else each.text for head, each in zip(heads, result.snippets, strict=True)
    ]
    return "\n\n".join(block for block in (result.summary, *snippets) if block) or "No results."
