"""Retries: exponential back-off with jitter, Retry-After, limits on the attempts and on the total time."""

import email.utils
import math
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, TypeVar

from pydantic import Field

from rubricem_env.domain.base import PositiveCount
from rubricem_env.domain.errors import BoundaryError, boundary
from rubricem_env.domain.settings import Settings
from rubricem_env.llm.limits.deadline import DEADLINE, Deadline
from rubricem_env.llm.limits.outages import watched
from rubricem_env.llm.limits.timing import Timing

Result = TypeVar("Result")
RETRYABLE_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""HTTP statuses after which the same request may succeed."""


class RetryPolicy(Settings):
    """How often, how fast and for how long. The defaults are the paper's five retries within ten minutes."""

    attempts: PositiveCount = 6
    """How often the call is tried, the first try included. A server's refusal for its rate (429) is no try: it is
    waited for until the deadline.
    """
    initial_delay: Annotated[float, Field(gt=0)] = 1.0
    """Seconds before the second try. They are multiplied by `factor` for each one after it."""
    factor: Annotated[float, Field(ge=1)] = 2.0
    max_delay: Annotated[float, Field(gt=0)] = 60.0
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.5
    """The share of a delay that is drawn at random: 0.5 waits between half and all of it."""
    deadline: Annotated[float, Field(gt=0)] = 600.0
    """Seconds for all tries and the waits between them; a running try is aborted then.

    Waiting for one's turn at a limiter does not count.
    """

    def delay(self, retry: int, draw: float, *, retry_after: float | None = None) -> float:
        """Seconds to wait before the given retry, counted from 0; `draw` is uniform in [0, 1).

        A server's Retry-After is a minimum. The jitter is added to it, so that many callers do not return at once.
        """
        # The exponent is bounded because a float overflows long before anyone retries so often.
        backoff = min(self.max_delay, self.initial_delay * self.factor ** min(retry, 64))
        if retry_after is not None:
            return retry_after + backoff * self.jitter * draw
        return backoff * (1 - self.jitter * draw)


async def call_with_retry(
    operation: Callable[[], Awaitable[Result]],
    *,
    doing: str,
    error: type[BoundaryError],
    policy: RetryPolicy,
    timing: Timing,
    longest: float = math.inf,
) -> Result:
    """Await `operation` until it succeeds, its failure is not retryable, or attempts or time are used up.

    A refusal for the server's rate uses up no attempt.

    The time that it waits in a `Limiter` for its turn is not counted. A try that ends by itself within `longest`
    seconds has no second timer where there is more time than that. Whatever the operation raises crosses
    `boundary(error, doing)` first. The last failure is raised unchanged. Errors that are not `BoundaryError`s, such as
    a reached spending limit, are raised at once.
    """
    deadline = Deadline(policy.deadline, timing.clock)
    tries = refusals = 0
    with watched(doing) as report:
        while True:
            reset = DEADLINE.set(deadline)
            try:
                with boundary(error, doing):
                    if longest < deadline.left:
                        return await operation()
                    async with deadline.running():
                        return await operation()
            except BoundaryError as failure:
                if failure.is_rate_limited:
                    refusals += 1
                else:
                    tries += 1
                if not failure.is_retryable or tries == policy.attempts:
                    raise
                before = (refusals if failure.is_rate_limited else tries) - 1
                wait = policy.delay(before, float(timing.rng.random()), retry_after=failure.retry_after)
                # A wait that outlasts the deadline would only delay the same failure.
                if wait >= deadline.left:
                    raise
                report(str(failure))
            finally:
                DEADLINE.reset(reset)
            await timing.sleep(wait)


def parse_retry_after(value: str | None, *, now: datetime | None = None) -> float | None:
    """The seconds that a Retry-After header asks for: a number, or an HTTP date; None if it is neither."""
    if value is None or not value.strip():
        return None
    try:
        seconds = float(value)
        return seconds if math.isfinite(seconds) and seconds >= 0 else None
    except ValueError:
        pass
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0.0, (aware - (now or datetime.now(UTC))).total_seconds())
