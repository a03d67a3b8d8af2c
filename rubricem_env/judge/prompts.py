"""The judge's prompts: files beside the code, each known by the hash that goes with every result it makes."""

import hashlib
from importlib import resources
from typing import NamedTuple


class Prompt(NamedTuple):
    """A prompt file's text and the start of its SHA-256."""

    text: str
    hash: str


def read_prompt(name: str) -> Prompt:
    """One of `propose`, `score`, `repair`, `reflect`."""
    text = resources.files("rubricem_env.judge").joinpath("prompts", f"{name}.md").read_text(encoding="utf-8")
    return Prompt(text, hashlib.sha256(text.encode()).hexdigest()[:16])
