"""Title and address of each snippet that the tools have shown in an episode."""

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from rubricem_env.domain.trajectory import Origin, Trajectory
from rubricem_env.scaffold.untrusted import restore

_SNIPPET = re.compile(r'<snippet id="([^"]{1,40})">(.*?)</snippet>', re.DOTALL)

_URL_AT_END = re.compile(r"(?:^|\| )(https?://\S+)$")


class SnippetSource(NamedTuple):
    """Where a snippet comes from; both fields are empty where the tool did not say."""

    title: str
    url: str


def shown_sources(trajectory: Trajectory) -> Mapping[str, SnippetSource]:
    """Every snippet that a tool has shown in this episode, by id."""
    shown: dict[str, SnippetSource] = {}
    for segment in trajectory.segments:
        if segment.origin is Origin.TOOL:
            shown |= sources_in(segment.text)
    return shown


def sources_in(observation: str) -> Mapping[str, SnippetSource]:
    """The snippets of an observation's text."""
    return {snippet_id: _source(body) for snippet_id, body in _SNIPPET.findall(observation)}


def _source(body: str) -> SnippetSource:
    """The first line is title and address, where the tool gave any."""
    head, line_break, _ = body.partition("\n")
    if not line_break:
        return SnippetSource("", "")
    url = _URL_AT_END.search(head)
    title = head[: url.start()] if url else head
    return SnippetSource(restore(title).strip(" |"), _web_address(url[1]) if url else "")


def _web_address(written: str) -> str:
    """The address if it is one of the web and can stand in a link; else nothing."""
    address = urlsplit(restore(written))
    if address.scheme not in ("http", "https") or not address.hostname:
        return ""
    unsafe = {" ": "%20", "(": "%28", ")": "%29", "<": "%3C", ">": "%3E", '"': "%22", "\\": "%5C"}
    return "".join(unsafe.get(char, char) for char in address.geturl() if char.isprintable())
