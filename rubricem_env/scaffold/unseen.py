"""Finds characters that nobody sees."""

import re
import unicodedata

_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
"""Nothing to see, beside what Unicode itself calls controls, formats, private, or not assigned."""
_UNSEEN_KINDS = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
_VARIANTS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_MOST_MARKS = 4
"""The most marks above and below one letter. More of them hide text."""


def find_unseen(text: str) -> str | None:
    before = " "
    marks = 0
    for char in text:
        marks = marks + 1 if unicodedata.category(char) in ("Mn", "Me") else 0
        if marks > _MOST_MARKS or (_is_hidden(char) and not _needs(before, char)):
            return char
        before = char
    return None


def _is_hidden(char: str) -> bool:
    if char in "\t\n\r":
        return False
    return unicodedata.category(char) in _UNSEEN_KINDS or char in _BLANKS or bool(_VARIANTS.match(char))


def _needs(before: str, char: str) -> bool:
    """Persian, Hindi and emoji are written with joiners, and emoji with a variant."""
    if char in "\u200c\u200d":
        return not before.isascii()
    return bool(_VARIANTS.match(char)) and unicodedata.category(before) == "So"
