"""The index of an attempt in a run, and the seed that follows from it."""

import hashlib

import numpy as np

RolloutIndex = tuple[str, int, int]
"""Identifies a rollout of a run: the question's key, the occurrence of the question, the attempt."""


def attempt_seed(seed: int, index: RolloutIndex) -> int:
    """The seed of one attempt: it depends on the attempt's index, not on the order of running."""
    query_key, occurrence, attempt = index
    key = int.from_bytes(hashlib.sha256(query_key.encode()).digest()[:8])
    return int(np.random.SeedSequence([seed, key, occurrence, attempt]).generate_state(1)[0])
