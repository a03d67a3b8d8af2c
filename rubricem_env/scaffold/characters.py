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
# Each pattern is tried only where its first characters occur at all: a search for a literal is the cheapest there is.
_LOOKALIKES = (
    ("<", re.compile(rf"<(?!{_TAG}){_BODY}", _FLAGS)),
    ("&lt;", re.compile(rf"&lt;{_BODY}", _FLAGS)),
    *((opener, re.compile(opener + _BODY, _FLAGS)) for opener in "\uff1c\ufe64\u2039"),
)


def suspicious_characters(text: str, turn: int) -> list[Violation]:
    """One violation for each kind that occurs: broken Unicode, control characters, lookalike tags."""
    found: list[Violation] = []
    # Asking for each character in turn is ten times as fast as a character class: each is a plain memory search.
    control = next((char for char in (_CONTROL if text.isascii() else _CONTROL + _WIDE_CONTROL) if char in text), None)
    if control is not None:
        found.append(violation(Code.CONTROL_CHARACTER, turn, f"U+{ord(control):04X}", text.index(control)))
    broken = None if text.isascii() else _BROKEN.search(text)
    if broken:
        found.append(violation(Code.INVALID_UNICODE, turn, f"U+{ord(broken[0]):04X}", broken.start()))
    for opener, pattern in _LOOKALIKES:
        lookalike = pattern.search(text) if opener in text else None
        if lookalike:
            found.append(violation(Code.LOOKALIKE_TAG, turn, lookalike[0], lookalike.start()))
            break
    return found
