"""The readable text of an HTML page, in one pass of linear time: nothing is run, nothing is loaded."""

import html
import re
from typing import NamedTuple

_TAG_NAME = re.compile(r"</?([a-zA-Z][a-zA-Z0-9]{0,30})")
_SKIPPED = frozenset(
    {"script", "style", "noscript", "template", "svg", "iframe", "object", "textarea", "select", "title"}
)
_SKIP_ENDS = {name: re.compile(rf"</{name}", re.IGNORECASE | re.ASCII) for name in _SKIPPED}
_INLINE = frozenset(
    {"a", "abbr", "b", "cite", "code", "em", "font", "i", "mark", "q", "small", "span", "strong", "sub", "sup", "u"}
)
_ENDLESS_NUMBER = re.compile(r"&#[0-9]{20,};?")
"""A character by a number that Python refuses to read once it has thousands of digits."""
_SPACES = re.compile(r"[^\S\n]+")
_BREAKS = re.compile(r"\s*\n\s*")


class PageText(NamedTuple):
    """What a reader would read."""

    title: str
    text: str


def read_page(source: str) -> PageText:
    """Text without markup, scripts and styles; a line for each block."""
    pieces: list[str] = []
    title = ""
    at = 0
    while True:
        opening = source.find("<", at)
        if opening < 0:
            pieces.append(source[at:])
            break
        pieces.append(source[at:opening])
        step = _read_markup(source, opening)
        pieces.append(step.shown)
        title = title or step.title
        if step.end < 0:
            break
        at = step.end
    return PageText(_tidy(title).replace("\n", " "), _tidy("".join(pieces)))


class _Step(NamedTuple):
    end: int
    """Where reading goes on; -1 where the page breaks off."""
    shown: str = ""
    title: str = ""


def _read_markup(source: str, opening: int) -> _Step:
    """One comment, tag or element to skip, from its `<`. Whatever is never closed ends the page: no search is repeated."""
    if source.startswith("<!--", opening):
        end = source.find("-->", opening + 4)
        return _Step(end + 3 if end >= 0 else -1)
    found = _TAG_NAME.match(source, opening)
    if found is None and source[opening + 1 : opening + 2] not in ("!", "?"):
        return _Step(opening + 1, "<")
    end = source.find(">", opening)
    if end < 0:
        return _Step(-1)
    name = found[1].lower() if found else ""
    if name in _SKIPPED and source[opening + 1] != "/":
        return _skip(source, name, end + 1)
    return _Step(end + 1, "" if name in _INLINE else "\n")


def _skip(source: str, name: str, start: int) -> _Step:
    end = _SKIP_ENDS[name].search(source, start)
    if end is None:
        return _Step(-1)
    return _Step(end.start(), title=source[start : end.start()] if name == "title" else "")


def _tidy(text: str) -> str:
    return _BREAKS.sub("\n", _SPACES.sub(" ", html.unescape(_ENDLESS_NUMBER.sub("\ufffd", text)))).strip()
