"""The citations of an answer, and which of them name a snippet that a tool has shown."""

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from rubricem_env.scaffold.lexer import Token, find_citation_tags, parse_attributes

_ID = re.compile(r"[^,;\s]+")
_UNQUOTED_IDS = re.compile(r"\sids?\s*=\s*([\w:.-]+(?:\s*[,;]\s*[\w:.-]+)+)\s*/?$", re.IGNORECASE)
"""Several ids without quotes; spaces between them would end an unquoted value."""
_REGULAR = re.compile(r'(<cite id="([^"<>]{0,2000}+)">)([^<]*+)</cite>')
"""The usual form; an answer with no other form is read with this alone."""


class Citation(NamedTuple):
    """One citation tag in an answer."""

    ids: tuple[str, ...]
    claim: str
    written: str
    """The opening tag, as it is written."""
    start: int
    """The citation's start in the answer's text."""
    end: int

    @property
    def is_empty(self) -> bool:
        return not self.ids or not self.claim.strip()


class Citations(NamedTuple):
    """An answer's citations, resolved. Ids are listed once, in order of first use."""

    known: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    """The ids that no tool has shown in this episode. They are invented, misspelt, or written by the policy itself."""
    empty: tuple[Citation, ...] = ()
    """The citations that have no id, or are around no text."""


def find_citations(answer: str) -> Iterator[Citation]:
    """Every citation tag of an answer. An unclosed one reaches to the next tag or the end."""
    regular = list(_REGULAR.finditer(answer))
    if 2 * len(regular) == answer.count("<"):
        for match in regular:
            yield Citation(tuple(_ID.findall(match[2])), match[3], match[1], match.start(), match.end())
        return
    yield from find_any_citations(answer)


def find_any_citations(answer: str) -> Iterator[Citation]:
    """The same, tag by tag, for citations of any form."""
    tags = find_citation_tags(answer)
    for index, token in enumerate(tags):
        if token.closing:
            continue
        following = tags[index + 1] if index + 1 < len(tags) else None
        until = token.end if token.empty else (following.start if following else len(answer))
        end = following.end if following is not None and following.closing and not token.empty else until
        yield Citation(_ids(token), answer[token.end : until], answer[token.start : token.end], token.start, end)


def _ids(token: Token) -> tuple[str, ...]:
    unquoted = _UNQUOTED_IDS.search(token.attributes) if '"' not in token.attributes else None
    if unquoted is not None:
        return tuple(_ID.findall(unquoted[1]))
    attributes = parse_attributes(token)[0]
    return tuple(_ID.findall(attributes.get("id") or attributes.get("ids") or ""))


def resolve_citations(answer: str, shown: Collection[str]) -> Citations:
    """Sort the ids that the answer cites into shown and not shown."""
    known: dict[str, None] = {}
    unknown: dict[str, None] = {}
    empty: list[Citation] = []
    for citation in find_citations(answer):
        if citation.is_empty:
            empty.append(citation)
        for snippet_id in citation.ids:
            (known if snippet_id in shown else unknown)[snippet_id] = None
    return Citations(tuple(known), tuple(unknown), tuple(empty))
