"""A unit of parity: one kind of recorded case, and the scorers that must reproduce it."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

Scorer = Callable[..., object]
"""Scores one kind of recorded case: its parameters are the fields of the case's input that it reads.

It returns JSON-like values, and raises ScoringError where the official scorer raises.
"""


class Unit(NamedTuple):
    """The scorers of one kind of recorded case."""

    official: Scorer
    variants: Mapping[str, Scorer] = MappingProxyType({})
    """The other published scorers, by the name under which a recording has their results."""
