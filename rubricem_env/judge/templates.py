"""The system prompts of the judge, made from the files in `prompts/`."""

import hashlib


def digest(text: str) -> str:
    """The start of the text's SHA-256, which identifies a prompt."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
