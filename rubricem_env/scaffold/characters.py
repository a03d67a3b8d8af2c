"""Characters that a reader does not see, and tags that are none: reported, never acted upon."""

import re

from rubricem_env.domain.base import REPLACEMENT
from rubricem_env.scaffold.grammar import CANONICAL
from rubricem_env.scaffold.neutralize import GAP, spaced_names
from rubricem_env.scaffold.violations import Code, Violation, violation

_CONTROL = "".join(map(chr, (*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F)))
_WIDE_CONTROL = "".join(map(chr, (*range(0x80, 0xA0), 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))))
_BROKEN = re.compile(f"[\ud800-\udfff{REPLACEMENT}]")

_FLAGS = re.IGNORECASE | re.ASCII
_BODY = rf"{GAP}/?{GAP}(?:{spaced_names(CANONICAL)})(?![\w-])"
_TAG = rf"/?(?:{'|'.join(sorted(CANONICAL, key=len, reverse=True))})(?![\w-])[^<>]*+>"
_FALSE_TAG = re.compile(rf"<(?!{_TAG}){_BODY}", _FLAGS)
# Each pattern is tried only where its first characters occur at all: a search for a literal is the cheapest there is.
_LOOKALIKES = (
    ("&lt;", re.compile(rf"&lt;{_BODY}", _FLAGS)),
    *((opener, re.compile(opener + _BODY, _FLAGS)) for opener in "\uff1c\ufe64\u2039"),
)


def suspicious_characters(text: str, turn: int, *, tags: int = 0) -> list[Violation]:
    """One violation for each kind that occurs: broken Unicode, control characters, lookalike tags.

    `tags` is how many tags are known to be in the text; where that is every `<`, none of them is looked at again.
    """
    found: list[Violation] = []
    # Asking for each character in turn is ten times as fast as a character class: each is a plain memory search.
    unseen = _CONTROL if text.isascii() else _CONTROL + _WIDE_CONTROL
    control = [char for char in unseen if char in text]
    if control:
        first = min(control, key=text.index)
        found.append(violation(Code.CONTROL_CHARACTER, turn, f"U+{ord(first):04X}", text.index(first)))
    broken = None if text.isascii() else _BROKEN.search(text)
    if broken:
        found.append(violation(Code.INVALID_UNICODE, turn, f"U+{ord(broken[0]):04X}", broken.start()))
    lookalike = _find_lookalike(text, tags)
    if lookalike:
        found.append(violation(Code.LOOKALIKE_TAG, turn, lookalike[0], lookalike.start()))
    return found


def _find_lookalike(text: str, tags: int) -> re.Match[str] | None:
    """The first of the first kind that occurs."""
    false_tag = _FALSE_TAG.search(text) if text.count("<") > tags else None
    if false_tag:
        return false_tag
    return next((match for opener, pattern in _LOOKALIKES if opener in text and (match := pattern.search(text))), None)
