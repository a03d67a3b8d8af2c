"""Shortens a value for a message."""


def shown(value: object, *, limit: int = 80) -> str:
    """A value in a message: a list by its items, a long text by its beginning."""
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else "not there" if value is None else str(value)
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"
