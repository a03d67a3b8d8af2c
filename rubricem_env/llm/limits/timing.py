"""The clock, the sleep and the random numbers that retries and limiters use."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import numpy as np


class Timing(NamedTuple):
    """The clock, the sleep and the random numbers, so that tests control all three."""

    clock: Callable[[], float]
    """The clock gives seconds and is monotonic."""
    sleep: Callable[[float], Awaitable[None]]
    rng: np.random.Generator

    @classmethod
    def real(cls, seed: int | None = None) -> "Timing":
        return cls(time.monotonic, asyncio.sleep, np.random.default_rng(seed))
