"""Tool results as MCP carries them: ours as structured content, anybody's as text."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from rubricem_env.domain.tool import Snippet, ToolResult, ToolStatus

MAX_SNIPPETS = 20
_OUR_KEYS = frozenset({"status", "summary", "snippets", "message"})
_MAX_TEXT = 200_000
"""Characters of one piece of foreign text that are kept; far beyond what a policy is shown."""


class CallOutcome(NamedTuple):
    """What a server answered, whatever the version of its protocol."""

    texts: tuple[str, ...] = ()
    structured: Any = None
    is_error: bool = False


def result_schema() -> dict[str, Any]:
    """The JSON schema of our structured content."""
    return ToolResult.model_json_schema(mode="serialization")


def plain_text(result: ToolResult) -> str:
    """A result for clients that read text alone."""
    if result.status.is_error:
        return f"{result.status.value}: {result.message}"
    blocks = [result.summary, *(_block(snippet) for snippet in result.snippets)]
    return "\n\n".join(block for block in blocks if block) or "No results."


def read_outcome(outcome: CallOutcome, *, server: str) -> ToolResult:
    """A `ToolResult` from our own servers; from others snippets, one for each piece of text."""
    ours = _read_ours(outcome.structured)
    if ours is not None:
        return ours
    texts = [text[:_MAX_TEXT] for text in outcome.texts if text.strip()]
    if outcome.is_error:
        said = " ".join(" ".join(texts).split())[:300] or "no reason given"
        return ToolResult(status=ToolStatus.ERROR, message=f"{server} says: {said}")
    if not texts and outcome.structured is not None:
        texts = [json.dumps(outcome.structured, ensure_ascii=False)[:_MAX_TEXT]]
    snippets = tuple(_limited(Snippet(text=text, title=server) for text in texts))
    return ToolResult(status=ToolStatus.OK if snippets else ToolStatus.EMPTY, snippets=snippets)


def _read_ours(structured: Any) -> ToolResult | None:
    # All of it or nothing: many a foreign tool has a status too, and says the rest in its text.
    if not isinstance(structured, Mapping) or not structured.keys() >= _OUR_KEYS:
        return None
    try:
        # Not strict: JSON has lists for tuples and strings for enums.
        return ToolResult.model_validate(structured, strict=False)
    except ValidationError:
        return None


def _limited(snippets: Iterable[Snippet]) -> Iterable[Snippet]:
    return (snippet for _, snippet in zip(range(MAX_SNIPPETS), snippets, strict=False))


def _block(snippet: Snippet) -> str:
    head = " | ".join(part for part in (snippet.title, snippet.url) if part)
    return f"{head}\n{snippet.text}" if head else snippet.text
