"""Folds texts that look alike into one form: to read a text as a reader sees it, and to compare two.

`fold` keeps case, spaces and punctuation, for patterns that search in it. `fold_letters` keeps letters and digits
alone.
"""

import html
import json
import unicodedata
from collections.abc import Mapping

from rubricem_env.domain.inputs import package_text

_BY_SCRIPT: Mapping[str, tuple[str, str]] = json.loads(package_text("rubricem_env.scaffold", "lookalikes.json"))
"""The letters of each script, and the Latin or Arabic ones that they look like."""
_ODD, _PLAIN = map("".join, zip(*_BY_SCRIPT.values(), strict=True))
# NFKD makes fullwidth, mathematical and circled letters plain by itself, except white ones on black.
LOOKALIKES = str.maketrans(_ODD, _PLAIN) | {
    start + index: chr(65 + index) for start in (0x1F150, 0x1F170) for index in range(26)
}
LOOKALIKES |= {code + 0x97D0: plain for code, plain in LOOKALIKES.items() if 0x13A0 <= code < 0x13F0}  # small Cherokee
_BLANKS = str.maketrans(dict.fromkeys("\u115f\u1160\u2800", " "))
_NOT_SHOWN = frozenset({"Cf", "Mn", "Me"})
_TATWEEL = "\u0640"
"""A letter by its category that only stretches the one before it."""


def fold(text: str) -> str:
    """The text as a reader sees it, to compare and to search: other forms of a letter become the plain one.

    HTML entities are resolved, and letters that look like Latin or Arabic ones become those. Characters that show
    nothing go, and so do marks above and below letters; characters that only look empty become spaces. Case, spaces and
    punctuation stay.
    """
    for _ in range(2):  # "&amp;lt;" is "&lt;" is "<"
        text = html.unescape(text)
    if text.isascii():
        return text
    plain = unicodedata.normalize("NFKD", text).translate(_BLANKS)
    shown = "".join(char for char in plain if char != _TATWEEL and unicodedata.category(char) not in _NOT_SHOWN)
    return unicodedata.normalize("NFKC", shown).translate(LOOKALIKES)


# By lower-case letter, so that both cases of a word fold alike; a letter without a look of its own has its capital's.
_LOWER = {
    **{ord(chr(code).casefold()): plain for code, plain in LOOKALIKES.items()},
    **{code: plain for code, plain in LOOKALIKES.items() if chr(code) == chr(code).casefold()},
}
# These look the same in one of the cases or fonts: v and N are the two cases of one Greek letter, l is 1 in many fonts.
_SAME = str.maketrans("hvnymul103457", "nnnuuuiioeast")
_INVISIBLE = f"\u115f\u1160\u17b4\u17b5{_TATWEEL}"
"""Letters by their category that are never seen as such."""


class _Folding(dict[int, str | None]):
    """For `str.translate`: each character as its folded letters.

    It is a space between words, and nothing if it is not seen.
    """

    def __missing__(self, code: int) -> str | None:
        letters = ""
        is_separator = False
        for char in unicodedata.normalize("NFKD", chr(code)):
            if char not in _INVISIBLE and (char.isalnum() or ord(char) in LOOKALIKES):
                plain = unicodedata.normalize("NFKD", char.translate(LOOKALIKES) if not char.isalnum() else char)
                lower = unicodedata.normalize("NFKD", plain.casefold()).translate(_LOWER).lower()
                letters += "".join(filter(str.isalnum, lower)).translate(_SAME)
            elif unicodedata.category(char) not in _NOT_SHOWN and char not in _INVISIBLE:
                is_separator = True
        self[code] = letters or (" " if is_separator else None)
        return self[code]


_FOLDING = _Folding()


def fold_words(text: str) -> list[str]:
    """The words of a text, each as `fold_letters` has it."""
    return text.translate(_FOLDING).split()


def fold_letters(text: str) -> str:
    """The letters and digits of a text in a form that is equal for texts that look alike; the key for comparisons."""
    return "".join(fold_words(text))
