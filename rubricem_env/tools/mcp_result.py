"""Reads the reply of an MCP server as a `ToolResult`."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from rubricem_env.domain.trajectory import Snippet, ToolResult, ToolStatus
from rubricem_env.tools.failures import MAX_MESSAGE

MAX_SNIPPETS = 20
_MAX_TEXT = 200_000
"""Characters of one piece of foreign text that are kept; far more than a policy is shown."""
_OUR_KEYS = frozenset({"status", "summary", "snippets", "message"})


def read_outcome(texts: Sequence[str], structured: Any = None, *, is_error: bool = False, server: str) -> ToolResult:
    """A `ToolResult` from our own servers; from others snippets, one for each text."""
    ours = _read_ours(structured)
    if ours is not None:
        return ours
    shown = [text[:_MAX_TEXT] for text in texts if text.strip()]
    if is_error:
        said = " ".join(" ".join(shown).split())[:300] or "no reason given"
        return ToolResult(status=ToolStatus.ERROR, message=f"{server} says: {said}")
    if not shown and structured is not None:
        shown = [json.dumps(structured, ensure_ascii=False)[:_MAX_TEXT]]
    return ToolResult.found(Snippet(text=text, title=server) for text in shown[:MAX_SNIPPETS])


def _read_ours(structured: Any) -> ToolResult | None:
    # All of our keys: many foreign tools have a status too, and give the rest as text.
    if not isinstance(structured, Mapping) or not structured.keys() >= _OUR_KEYS:
        return None
    try:
        # Not strict: JSON has lists for tuples and strings for enums.
        result = ToolResult.model_validate(structured, strict=False)
    except ValidationError:
        return None
    snippets = (
        Snippet(text=each.text[:_MAX_TEXT], title=each.title[:_MAX_TEXT], url=each.url[:_MAX_TEXT])
        for each in result.snippets[:MAX_SNIPPETS]
    )
    # The server saw the repaired call, so its word on the repair does not count.
    return result.model_copy(
        update={
            "executed": None,
            "summary": result.summary[:_MAX_TEXT],
            "message": result.message[:MAX_MESSAGE],
            "snippets": tuple(snippets),
        }
    )
