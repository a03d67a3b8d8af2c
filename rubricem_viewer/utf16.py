"""Lengths and positions of a text in UTF-16 units, as JavaScript counts them."""


def count_units(text: str) -> int:
    """The length of a text as JavaScript counts it."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def character_at(text: str, unit: int) -> int:
    """The character that a unit belongs to."""
    return unit if text.isascii() else len(text.encode("utf-16-le")[: 2 * unit].decode("utf-16-le", "ignore"))
