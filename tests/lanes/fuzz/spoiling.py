"""Spoils values and bytes at random."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def pick(rng: np.random.Generator, items: Sequence[Any]) -> Any:
    return items[int(rng.integers(len(items)))]


def spoil(rng: np.random.Generator, value: Any) -> Any:
    """The JSON value with one part replaced, left out or doubled."""
    oddities = (None, True, 1.0, -1, 3, 10**400, "2", "", [], {}, [[]], "NaN", {"score": 2}, "\ud800", 0.5)
    if not isinstance(value, dict | list) or not value or rng.random() < 0.2:
        return pick(rng, oddities)
    if isinstance(value, dict):
        key = pick(rng, list(value))
        return {name: part for name, part in value.items() if name != key} | (
            {} if rng.random() < 0.2 else {key: spoil(rng, value[key])}
        )
    place = int(rng.integers(len(value)))
    return [*value[:place], *([] if rng.random() < 0.2 else [spoil(rng, value[place])]), *value[place + 1 :]]


def mangle(rng: np.random.Generator, content: bytes) -> bytes:
    """Bytes cut, flipped, doubled, nested or wrapped."""
    if not content:
        return b"\xff"
    at = int(rng.integers(len(content)))
    kinds = (
        content[:at],
        content[:at] + bytes([int(rng.integers(256))]) + content[at + 1 :],
        content[:at] + content[at:] * 2,
        content[:at] + b"[" * 5_000 + content[at:],
        content.replace(b"1", b"NaN", 1),
        content.replace(b"0", b"1" * 5_000, 1),
        content.replace(b'"', b"\xed\xa0\x80", 1),
        b"null",
        b"[]",
        b"{}",
        b"",
        b"\xef\xbb\xbf" + content,
    )
    return bytes(pick(rng, kinds))
