"""The words of the almanac as tables.

The whole world uses a few hundred words, so that a very small model can learn to read and copy it.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.inputs import package_text


class Attribute(NamedTuple):
    """A number that each entity has: low, low + step, ... up to high, in the unit."""

    name: str
    unit: str
    low: int
    high: int
    step: int


class Domain(NamedTuple):
    """One subject of the almanac."""

    name: str
    singular: str
    attributes: tuple[Attribute, Attribute, Attribute]
    link: str
    """The relation of every entity to one entity of the domain `target`."""
    target: str
    aspect: str
    """By convention, a good answer states it for every entity; it has one of `aspect_values`."""
    aspect_values: tuple[str, ...]
    closing: str
    """By convention, these words end a long answer; they are the same for the whole domain."""


_WORDS: Mapping[str, Any] = json.loads(package_text("rubricem_env.world", "vocabulary.json"))
DOMAINS = TypeAdapter(tuple[Domain, ...]).validate_python(_WORDS["domains"])
CAUSES: Sequence[str] = _WORDS["causes"]
"""What made a value change between two editions."""
FIRST_WORDS: Sequence[str] = _WORDS["first_words"]
SECOND_WORDS: Sequence[str] = _WORDS["second_words"]
"""A name is a first word and a second word: "Amber Falcon"."""


def domain_named(name: str) -> Domain:
    """The domain of that plural name, such as "rivers"."""
    domains = {domain.name: domain for domain in DOMAINS}
    if name not in domains:
        raise UsageError(f"the almanac has no domain {name!r}; it has {', '.join(domains)}. Use one of these.")
    return domains[name]
