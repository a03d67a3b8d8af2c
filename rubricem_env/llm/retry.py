"""Calling again: exponential back-off with jitter, Retry-After, a bound on attempts and one on the total time."""

import asyncio
import email.utils
import math
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, NamedTuple, TypeVar

import numpy as np
from pydantic import Field

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import BoundaryError, boundary

Result = TypeVar("Result")
RETRYABLE_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""HTTP statuses after which the same request may succeed."""


class RetryPolicy(Frozen):
    """How often, how fast and for how long. The defaults are the paper's five retries within ten minutes."""

    attempts: Annotated[int, Field(ge=1)] = 6
    """The first try included."""
    initial_delay: Annotated[float, Field(gt=0)] = 1.0
    """Seconds before the second try; doubled by `factor` for each one after it."""
    factor: Annotated[float, Field(ge=1)] = 2.0
    max_delay: Annotated[float, Field(gt=0)] = 60.0
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.5
    """The share of a delay that is drawn at random: 0.5 waits between half and all of it."""
    deadline: Annotated[float, Field(gt=0)] = 600.0
    """Seconds for all tries and waits together; a try that is under way is cut off there.

    Waiting for a limiter inside a try counts: where rates are tight for the number of calls, allow more time.
    """

    def delay(self, retry: int, draw: float, *, retry_after: float | None = None) -> float:
        """Seconds to wait before the given retry, counted from 0; `draw` is uniform in [0, 1).

        A server's Retry-After is a floor: never earlier than it asks, spread beyond it so that a crowd does not
        come back as one.
        """
        # The exponent is bounded because a float overflows long before anyone retries so often.
        backoff = min(self.max_delay, self.initial_delay * self.factor ** min(retry, 64))
        if retry_after is not None:
            return max(0.0, retry_after) + backoff * self.jitter * draw
        return backoff * (1 - self.jitter * draw)


class RetryAdvice(NamedTuple):
    """A failure may pass: try again, not before `retry_after` seconds where the server named them."""

    retry_after: float | None = None


class Timing(NamedTuple):
    """The clock, the sleep and the dice, so that tests hold all three."""

    clock: Callable[[], float]
    """Seconds, monotonic."""
    sleep: Callable[[float], Awaitable[None]]
    rng: np.random.Generator

    @classmethod
    def real(cls, seed: int | None = None) -> "Timing":
        return cls(time.monotonic, asyncio.sleep, np.random.default_rng(seed))


async def call_with_retry(
    operation: Callable[[], Awaitable[Result]],
    *,
    doing: str,
    error: type[BoundaryError],
    advise: Callable[[BoundaryError], RetryAdvice | None],
    policy: RetryPolicy,
    timing: Timing,
) -> Result:
    """Await `operation` until it succeeds, `advise` says None, or attempts or time are used up.

    Whatever the operation raises crosses `boundary(error, doing)` first; `advise` sees the outcome, with the
    foreign exception as its cause. The last failure is raised as it is. Errors that are not `BoundaryError`s,
    such as a reached ceiling, pass at once.
    """
    ends = timing.clock() + policy.deadline
    for retry in range(policy.attempts):
        try:
            with boundary(error, doing):
                async with asyncio.timeout(max(0.0, ends - timing.clock())):
                    return await operation()
        except BoundaryError as failure:
            advice = advise(failure)
            if advice is None or retry + 1 == policy.attempts:
                raise
            wait = policy.delay(retry, float(timing.rng.random()), retry_after=advice.retry_after)
            # A wait that outlasts the deadline would only delay the same failure.
            if timing.clock() + wait >= ends:
                raise
        await timing.sleep(wait)
    raise AssertionError("unreachable: attempts is at least 1, and the last failure is raised")


def parse_retry_after(value: str | None, *, now: datetime | None = None) -> float | None:
    """The seconds that a Retry-After header asks for: a number, or an HTTP date; None where it says neither."""
    if value is None or not value.strip():
        return None
    try:
        seconds = float(value)
    except ValueError:
        return _seconds_until(value, now or datetime.now(UTC))
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _seconds_until(value: str, now: datetime) -> float | None:
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0.0, (aware - now).total_seconds())
