"""What an episode's snippet ids stand for: title and address, as the tools showed them."""

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from rubricem_env.domain.trajectory import Origin, Segment, Trajectory
from rubricem_env.scaffold.neutralize import restore

_SNIPPET = re.compile(r'<snippet id="([^"]{1,40})">(.*?)</snippet>', re.DOTALL)
_URL_AT_END = re.compile(r"(?:^|\| )(https?://\S+)$")


class Source(NamedTuple):
    """Where a snippet comes from; both are empty where the tool did not say."""

    title: str
    url: str


def shown_sources(trajectory: Trajectory) -> Mapping[str, Source]:
    """Every snippet that a tool has shown in this episode, by id."""
    return {
        snippet_id: source for segment in trajectory.segments for snippet_id, source in segment_sources(segment).items()
    }


def segment_sources(segment: Segment) -> Mapping[str, Source]:
    """The snippets of one tool segment; nothing for what the policy wrote."""
    if segment.origin is not Origin.TOOL:
        return {}
    return sources_in(segment.text)


def sources_in(observation: str) -> Mapping[str, Source]:
    """The snippets of an observation's text."""
    return {snippet_id: _source(body) for snippet_id, body in _SNIPPET.findall(observation)}


def _source(body: str) -> Source:
    """The first line is title and address, where the tool gave any."""
    head, line_break, _ = body.partition("\n")
    if not line_break:
        return Source("", "")
    found = _URL_AT_END.search(head)
    title = head[: found.start()] if found else head
    return Source(restore(title).strip(" |"), _web_address(found[1]) if found else "")


def _web_address(written: str) -> str:
    """The address if it is one of the web and can stand in a link; else nothing."""
    address = urlsplit(restore(written))
    if address.scheme not in ("http", "https") or not address.hostname:
        return ""
    unsafe = {" ": "%20", "(": "%28", ")": "%29", "<": "%3C", ">": "%3E", '"': "%22", "\\": "%5C"}
    return "".join(unsafe.get(char, char) for char in address.geturl() if char.isprintable())
