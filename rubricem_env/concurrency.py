"""Runs coroutines together: the first failure cancels the rest and is raised as itself.

Randomness that depends on what is judged, and never on when: seeds from (seed, step, question, purpose).
"""

import asyncio
import hashlib
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

import numpy as np

Result = TypeVar("Result")


async def run_together(coroutines: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """The results, in the order given. No task outlives this call, however it ends."""
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup as failures:
        # A caller catches one typed error; the others are consequences of the same outage.
        raise failures.exceptions[0] from None
    return [task.result() for task in running]


def derive_seed(seed: int | None, *parts: object) -> int:
    """A 64-bit seed; equal parts give equal seeds on every machine and in every order of completion. None counts as 0."""
    text = "\0".join(str(part) for part in (seed or 0, *parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def open_generator(seed: int | None, *parts: object) -> np.random.Generator:
    return np.random.default_rng(derive_seed(seed, *parts))
