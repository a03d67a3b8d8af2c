"""The reasoning that some servers leave in the text of a reply."""

import re

from rubricem_env.scaffold.folding import fold

THOUGHT = re.compile(r"\s*(?:<think>.*?(?:</think>|\Z)\s*)+", re.DOTALL)
"""A thought before the text of a reply. One that never closes leaves no text."""


def without_thoughts(text: str) -> str:
    """The text of a reply after its reasoning, which some servers leave in it, with or without the opening tag."""
    thought = THOUGHT.match(text)
    if thought is not None:
        return text[thought.end() :]
    before, closing, after = text.rpartition("</think>")
    is_thought = closing and "<think>" not in before and not before.lstrip().startswith(("{", "[", "```"))
    return after.lstrip() if is_thought else text


def has_visible_text(text: str) -> bool:
    """Whether a reader would see anything of it."""
    return any(char.isprintable() and not char.isspace() for char in fold(text))
