"""Prompts as files: each is known by its name and by the hash that goes with every result it makes.

A prompt file is Markdown in `prompts/`. A line `<!-- section: NAME -->` begins a named section; `{{name}}` is a
place to fill. Filling looks at the file's own text alone: what is filled in is never read as a place again.
"""

import hashlib
import re
from collections.abc import Mapping
from importlib import resources
from typing import NamedTuple

from rubricem_env.domain.errors import ConfigError

_SECTION = re.compile(r"^<!-- section: ([a-z_]+) -->\n", re.MULTILINE)
_PLACE = re.compile(r"\{\{([a-z_]+)\}\}")
HASH_LENGTH = 16


class Prompt(NamedTuple):
    """One prompt file."""

    name: str
    text: str
    hash: str
    """The start of the SHA-256 of the whole file."""

    def section(self, name: str) -> str:
        """The text of one section, stripped.

        Raises:
            ConfigError: the file has no such section.
        """
        parts = _SECTION.split(self.text)
        sections = dict(zip(parts[1::2], parts[2::2], strict=True))
        if name not in sections:
            has = ", ".join(sections) or "none"
            raise ConfigError(f"the prompt {self.name!r} has no section {name!r}; it has: {has}.")
        return sections[name].strip()


def read_prompt(name: str) -> Prompt:
    """The prompt file `prompts/NAME.md`.

    Raises:
        ConfigError: there is none of that name.
    """
    folder = resources.files("rubricem_agent.prompting").joinpath("prompts")
    file = folder.joinpath(f"{name}.md")
    if not file.is_file():
        known = ", ".join(sorted(entry.name.removesuffix(".md") for entry in folder.iterdir()))
        raise ConfigError(f"there is no prompt {name!r}; the prompts are: {known}.")
    return prompt_from_text(name, file.read_text(encoding="utf-8"))


def prompt_from_text(name: str, text: str) -> Prompt:
    """A prompt that is no file of ours, such as a user's own."""
    return Prompt(name, text, hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH])


def fill(text: str, parts: Mapping[str, str]) -> str:
    """The text with every place filled, in one pass.

    Raises:
        ConfigError: a place has no part, or a part has no place.
    """
    places = set(_PLACE.findall(text))
    if places != set(parts):
        missing, unknown = sorted(places - set(parts)), sorted(set(parts) - places)
        raise ConfigError(f"the prompt's places do not match what was given: missing {missing}, unknown {unknown}.")
    return _PLACE.sub(lambda found: parts[found[1]], text)
