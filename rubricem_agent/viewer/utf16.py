"""Places in a text as JavaScript counts them: in UTF-16 units, of which a character beyond U+FFFF has two."""

from bisect import bisect_left

_BMP_END = "\uffff"


class Utf16:
    """Translates character offsets of one text."""

    def __init__(self, text: str) -> None:
        wide = [] if text.isascii() else [place for place, char in enumerate(text) if char > _BMP_END]
        self._wide = wide
        self.length = len(text) + len(wide)
        """Of the whole text, in units."""

    def at(self, offset: int) -> int:
        """The unit at which the character `offset` begins."""
        return offset + bisect_left(self._wide, offset)

    def character(self, unit: int) -> int:
        """The character that a unit belongs to."""
        character = unit - len(self._wide)
        while self.at(character + 1) <= unit:
            character += 1
        return max(character, 0)
