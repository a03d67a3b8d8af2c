"""Randomness that depends on what is judged, and never on when: seeds from (seed, step, question, purpose)."""

import hashlib

import numpy as np


def derive_seed(seed: int | None, *parts: object) -> int:
    """A 64-bit seed; equal parts give equal seeds on every machine and in every order of completion. None counts as 0."""
    text = "\0".join(str(part) for part in (seed or 0, *parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def open_generator(seed: int | None, *parts: object) -> np.random.Generator:
    return np.random.default_rng(derive_seed(seed, *parts))
