"""Renders a tool's result as the text that the policy reads: numbered snippets, neutralized and limited in tokens.

`<tool_output>` delimits untrusted text. Foreign text cannot close it, because every scaffold tag in it gets a
backslash. The tag is short because each observation pays for its tokens.
"""

import re
import string
from collections.abc import Callable
from functools import cache
from typing import Annotated

from pydantic import Field

from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.domain.settings import Settings
from rubricem_env.domain.trajectory import Snippet, ToolResult, ToolStatus, source_lines
from rubricem_env.scaffold.grammar import DEFAULT, SNIPPET, TOOL_OUTPUT
from rubricem_env.scaffold.untrusted import neutralize

TokenCount = Callable[[str], int]
Writer = Callable[[str, Scaffold], str]
"""Makes foreign text inert."""
CUT = " [cut]"
_LETTERS = f"{string.ascii_letters}{string.whitespace}".encode()
_DIGITS = string.digits.encode()
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_QUARTERS = (
    (re.compile("[\u0386-\u03ce\u0410-\u045f\u05d0-\u05ea\u0620-\u064a]"), 2),
    (re.compile("[\u00a0-\u0370\u2010-\u2044\u3000-\u30ff\u4e00-\u9fff\uac00-\ud7a3\uff00-\uffef]"), 4),
    (re.compile("[\u0080-\u1fff]"), 6),
    (re.compile("[\u2000-\u2fff]"), 8),
    (re.compile("[\u0080-\uffff]"), 12),
)
"""Quarters of a token that a character costs, by script; the first match counts."""


def estimate_tokens(text: str) -> int:
    """A count without a tokenizer, rather too high than too low, by script.

    Four letters or spaces make a token, two signs or Greek, Cyrillic, Hebrew or Arabic letters, one digit or Chinese,
    Japanese or Korean character. Rarer characters cost up to three tokens, emoji and others beyond the BMP four.
    """
    plain = text if text.isascii() else _NOT_ASCII.sub("", text)
    rest = plain.encode().translate(None, _LETTERS)
    quarters = len(plain) + len(rest) + 2 * (len(rest) - len(rest.translate(None, _DIGITS)))
    if plain is not text:
        quarters += sum(map(_quarters, _NOT_ASCII.findall(text)))
    return (quarters + 3) // 4


@cache
def _quarters(char: str) -> int:
    return next((quarters for script, quarters in _QUARTERS if script.match(char)), 16)


def cap_text(text: str, max_tokens: int, count: TokenCount) -> str:
    """The text if it is short enough, else its beginning and ` [cut]`; never more than `max_tokens` besides that mark.

    `count` must not fall when text grows.
    """
    # No tokenizer uses more than one token for a byte, so a short text needs no count; none puts more than 64
    # characters into one token, so the text after that many is not read.
    if len(text) * 4 <= max_tokens:
        return text
    low, high = 0, max_tokens * 4
    # Most text has about four characters a token, so little more than what is shown is counted.
    while count(text[:high]) <= max_tokens:
        if high >= len(text):
            return text
        if high >= max_tokens * 64:
            return text[:high].rstrip() + CUT
        low, high = high, high * 2
    high = min(high, len(text)) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(text[:middle]) <= max_tokens else (low, middle - 1)
    return text[:low].rstrip() + CUT


NO_RESULTS = (
    "No results. Nothing was found for this query; try other words or another tool, and do not invent a source."
)
_Tokens = Annotated[int, Field(ge=16)]


class ObservationCaps(Settings):
    """Limits of foreign text in tokens: ten full observations leave a third of the paper's 18,432 to the policy."""

    snippet: _Tokens = 300
    """The most tokens of one snippet, with its title and address."""
    summary: _Tokens = 600
    total: _Tokens = 1_200
    """The most tokens of one observation."""


CAPS = ObservationCaps()
_LEAST = 16
"""A snippet with fewer tokens says nothing and is left out."""
_LINE_BREAK = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


def render_observation(
    result: ToolResult,
    *,
    first_id: int,
    notices: tuple[str, ...] = (),
    caps: ObservationCaps = CAPS,
    count_tokens: TokenCount = estimate_tokens,
    scaffold: Scaffold = DEFAULT,
) -> tuple[str, tuple[str, ...]]:
    """The text for the policy, and the ids of the snippets that it may now cite.

    Snippets are numbered from `first_id` on, foreign text is neutralized, each line of a summary is quoted with `> `,
    and the environment's notices are added: only these begin a line outside the snippets without `> `. A snippet
    without room is not shown and gets no id; the number of these is shown.
    """
    counted: dict[tuple[str, Writer], tuple[str, int]] = {}

    def shown(text: str, write: Writer = neutralize) -> tuple[str, int]:
        """As it is shown, and its tokens."""
        found = counted.get((text, write))
        if found is None:
            written = write(text, scaffold)
            found = counted[text, write] = written, count_tokens(written)
        return found

    def count(text: str) -> int:
        return shown(text)[1]

    lines = []
    room = caps.total
    if result.summary:
        most = min(caps.summary, caps.total)
        quote, used = shown(cap_text(result.summary, most, lambda text: shown(text, _quoted)[1]), _quoted)
        lines.append(quote)
        room -= used
    ids: list[str] = []
    for snippet in result.snippets:
        snippet_id = f"S_{first_id + len(ids)}"
        tag = f'<{SNIPPET} id="{snippet_id}">'
        free = room - count_tokens(f"{tag}{CUT}</{SNIPPET}>\n")
        if free < _LEAST:
            break
        body, used = shown(cap_text(_written(snippet), min(caps.snippet, free), count))
        lines.append(f"{tag}{body}</{SNIPPET}>")
        ids.append(snippet_id)
        room = free - used
    left_out = len(result.snippets) - len(ids)
    if left_out:
        lines.append(f"{left_out} more left out for length.")
    lines += _state(result, is_bare=not lines, count=count, scaffold=scaffold)
    return _wrap([*lines, *notices]), tuple(ids)


def _quoted(text: str, scaffold: Scaffold) -> str:
    """Foreign text that no line of the environment can be mistaken for."""
    inert = neutralize(text, scaffold)
    # No printable character breaks a line, and asking for that is faster than to search.
    lines = [inert] if inert.isprintable() else _LINE_BREAK.split(inert)
    return "\n".join(f"> {line}" for line in lines)


def render_notice(notice: str) -> str:
    """A message of the environment itself; nothing was executed."""
    return _wrap([notice])


def _state(result: ToolResult, *, is_bare: bool, count: TokenCount, scaffold: Scaffold) -> list[str]:
    if result.status.is_error:
        message = neutralize(cap_text(" ".join(result.message.split()), 100, count), scaffold) or "no reason given."
        return [f"The call failed ({result.status.value}): {message}"]
    return [NO_RESULTS] if result.status is ToolStatus.EMPTY or is_bare else []


def _written(snippet: Snippet) -> str:
    head = " | ".join(filter(None, source_lines(snippet)))
    return f"{head}\n{snippet.text}" if head else snippet.text


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
