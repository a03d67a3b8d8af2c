"""A tool's result as the text that the policy reads: numbered snippets, foreign text defused."""

from typing import NamedTuple

from rubricem_env.domain.tool import Snippet, ToolResult, ToolStatus
from rubricem_env.scaffold.grammar import SNIPPET, TOOL_OUTPUT
from rubricem_env.scaffold.neutralize import neutralize

NO_RESULTS = "No results. Nothing was found for this query; try other words or another tool, and do not invent a source."


class RenderedObservation(NamedTuple):
    """Text for the policy, and the ids that it may now cite."""

    text: str
    snippet_ids: tuple[str, ...]


def render_observation(result: ToolResult, *, first_id: int, notices: tuple[str, ...] = ()) -> RenderedObservation:
    """Number the snippets from `first_id` on (choice A13), defuse every foreign word, add the environment's notices."""
    ids = tuple(f"S_{first_id + place}" for place in range(len(result.snippets)))
    lines = [neutralize(result.summary)] if result.summary else []
    lines += [_render_snippet(snippet_id, snippet) for snippet_id, snippet in zip(ids, result.snippets, strict=True)]
    if result.status is ToolStatus.EMPTY or (result.status is ToolStatus.OK and not lines):
        lines.append(NO_RESULTS)
    if result.status.is_error:
        message = neutralize(result.message) or "no reason given."
        lines.append(f"The call failed ({result.status.value}): {message}")
    return RenderedObservation(_wrap([*lines, *notices]), ids)


def render_notice(notice: str) -> str:
    """A word from the environment itself, where nothing was executed."""
    return _wrap([notice])


def _render_snippet(snippet_id: str, snippet: Snippet) -> str:
    head = " | ".join(part for part in (snippet.title, snippet.url) if part)
    body = neutralize(f"{head}\n{snippet.text}" if head else snippet.text)
    return f'<{SNIPPET} id="{snippet_id}">{body}</{SNIPPET}>'


def _wrap(lines: list[str]) -> str:
    inner = "\n".join(lines)
    return f"<{TOOL_OUTPUT}>\n{inner}\n</{TOOL_OUTPUT}>"
