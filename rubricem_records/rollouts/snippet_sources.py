"""Title and address of each snippet that the tools have shown in an episode, as the episode recorded them.

They are never read from the text that the policy was shown: a page can write whatever it likes into that.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import NamedTuple
from urllib.parse import urlsplit

from rubricem_env.domain.trajectory import Origin, Segment, Source, Trajectory
from rubricem_env.scaffold.snippets import held_ids

_NOWHERE = Source()
_SNIPPET = re.compile(r'<snippet id="([^"]{1,40})">(.*?)</snippet>', re.DOTALL)
_UNSAFE = {" ": "%20", "(": "%28", ")": "%29", "<": "%3C", ">": "%3E", '"': "%22", "\\": "%5C"}


class SnippetSource(NamedTuple):
    """Where a snippet comes from; a field is empty where the tool did not say, or said what is no web address."""

    title: str
    url: str


def shown_sources(trajectory: Trajectory) -> Mapping[str, SnippetSource]:
    """Every snippet that a tool has shown in this episode, by id. A file without a record of them has none."""
    shown: dict[str, SnippetSource] = {}
    for segment in trajectory.segments:
        shown |= sources_of(segment)
    return shown


def sources_of(segment: Segment) -> Mapping[str, SnippetSource]:
    """The snippets of one tool segment that its text bears out."""
    seen = segment.observation
    if seen is None or segment.origin is not Origin.TOOL:
        return {}
    held = set(held_ids(segment.text, seen.snippet_ids))
    pairs = zip_longest(seen.snippet_ids, seen.sources[: len(seen.snippet_ids)], fillvalue=_NOWHERE)
    return {
        snippet_id: SnippetSource(" ".join(source.title.split()), _web_address(source.url))
        for snippet_id, source in pairs
        if isinstance(snippet_id, str) and isinstance(source, Source) and snippet_id in held
    }


def snippet_texts(segment: Segment) -> Iterator[tuple[str, str]]:
    """The id and the text of each snippet in a tool segment, without the line of its source where that is recorded."""
    sources = sources_of(segment)
    for snippet_id, body in _SNIPPET.findall(segment.text) if segment.origin is Origin.TOOL else ():
        has_head = any(sources.get(snippet_id, ())) and "\n" in body
        yield snippet_id, body.partition("\n")[2] if has_head else body


def _web_address(written: str) -> str:
    """The address if it is one of the web and can stand in a link; else nothing."""
    try:
        address = urlsplit(written)
        host = address.hostname
    except ValueError:
        return ""
    if address.scheme not in ("http", "https") or not host:
        return ""
    return "".join(_UNSAFE.get(char, char) for char in address.geturl() if char.isprintable())
