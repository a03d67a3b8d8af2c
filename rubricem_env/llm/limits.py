"""Retries and rate limits of servers.

Retries: exponential back-off with jitter, Retry-After, limits on the attempts and on the total time. Rates: calls at
once, requests a minute, tokens a minute. One limiter may serve many processes: `SharedLimits` stands in one of them,
such as a Ray actor, and `RemoteLimiter` calls it from the others.
"""

import asyncio
import email.utils
import math
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Coroutine, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple, Protocol, TypeVar

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
            return max(0.0, retry_after) + backoff * self.jitter * draw
        return backoff * (1 - self.jitter * draw)


class Timing(NamedTuple):
    """The clock, the sleep and the random numbers, so that tests control all three."""

    clock: Callable[[], float]
    """Seconds, monotonic."""
    sleep: Callable[[float], Awaitable[None]]
    rng: np.random.Generator

    @classmethod
    def real(cls, seed: int | None = None) -> "Timing":
        return cls(time.monotonic, asyncio.sleep, np.random.default_rng(seed))


class _Deadline:
    """When the tries of a call must have ended. It stands still while the call waits for its turn."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ends = clock() + seconds
        self._timeout: asyncio.Timeout | None = None

    @property
    def left(self) -> float:
        return max(0.0, self._ends - self._clock())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Abort what runs in it at the deadline."""
        try:
            async with asyncio.timeout(self.left) as self._timeout:
                yield
        finally:
            self._timeout = None

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        began = self._clock()
        self._reschedule(None)
        try:
            yield
        finally:
            self._ends += self._clock() - began
            self._reschedule(asyncio.get_running_loop().time() + self.left)

    def _reschedule(self, when: float | None) -> None:
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(when)


_DEADLINE: ContextVar[_Deadline | None] = ContextVar("deadline of the call", default=None)
"""Between a call's retries and the limiter below them, which need not know each other."""


def stand_still() -> AbstractContextManager[None]:
    """While a call waits for its turn, the clock of its retries stands still."""
    deadline = _DEADLINE.get()
    return nullcontext() if deadline is None else deadline.standing_still()


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

    The time that it waits in a `Limiter` for its turn is not counted. A try that ends by itself within `longest` seconds
    has no second timer where there is more time than that. Whatever the operation raises crosses
    `boundary(error, doing)` first. The last failure is raised unchanged. Errors that are not `BoundaryError`s, such as a
    reached spending limit, are raised at once.
    """
    deadline = _Deadline(policy.deadline, timing.clock)
    for retry in range(policy.attempts):
        reset = _DEADLINE.set(deadline)
        try:
            with boundary(error, doing):
                if longest < deadline.left:
                    return await operation()
                async with deadline.running():
                    return await operation()
        except BoundaryError as failure:
            if not failure.is_retryable or retry + 1 == policy.attempts:
                raise
            wait = policy.delay(retry, float(timing.rng.random()), retry_after=failure.retry_after)
            # A wait that outlasts the deadline would only delay the same failure.
            if wait >= deadline.left:
                raise
        finally:
            _DEADLINE.reset(reset)
        await timing.sleep(wait)
    raise AssertionError("unreachable: attempts is at least 1, and the last failure is raised")


async def call_with_hedge(
    call: Callable[[asyncio.Event], Coroutine[Any, Any, Result]],
    *,
    after: float,
    sleep: Callable[[float], Awaitable[None]],
) -> Result:
    """Await `call` and, `after` seconds from when it has begun, a second one beside it; the first result is taken.

    A call sets its event when its turn has come, so that a queue starts no second one. A failure is raised where no
    other call has begun that may still succeed. The call that is not needed is cancelled before this returns.
    """
    has_begun = (asyncio.Event(), asyncio.Event())

    async def call_again() -> Result:
        await has_begun[0].wait()
        await sleep(after)
        _DEADLINE.set(None)  # its wait for a turn must not extend the time of the first
        return await call(has_begun[1])

    calls = [asyncio.create_task(call(has_begun[0])), asyncio.create_task(call_again())]
    try:
        ended, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        if all(one.exception() for one in ended) and (calls[1] in ended or has_begun[1].is_set()):
            ended, _ = await asyncio.wait(calls)
        return next((one for one in calls if one in ended and not one.exception()), calls[0]).result()
    finally:
        for one in calls:
            one.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


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


Rate = Annotated[int, Field(ge=1)]


class Rates(Frozen):
    """What the server allows; None means no limit."""

    concurrency: Rate = 256
    requests_per_minute: Rate | None = None
    tokens_per_minute: Rate | None = None


class Limiter:
    """Shared by every caller of one server, on one event loop at a time. First come, first served.

    The calls of a minute are spread over it: each waits until the time of those before it has passed, which is 1/60 of a
    minute for a call where 60 a minute are allowed. A call of more tokens than a minute allows counts as a minute's.
    """

    def __init__(self, rates: Rates, timing: Timing) -> None:
        self._rates = rates
        self._has_rates = rates.requests_per_minute is not None or rates.tokens_per_minute is not None
        self._timing = timing
        self._slots: asyncio.Semaphore | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._free_at = [0.0, 0.0]
        """When the next call may begin: by the limit on requests, by the limit on tokens."""

    def slot(self, tokens: int) -> AbstractAsyncContextManager[None]:
        """Occupy one slot while a call of about so many tokens runs; the clock of its retries stands still until then."""
        slots = self._semaphore()
        # A free slot where no minute is counted is taken at once.
        return self._turn(tokens, slots) if self._has_rates or slots.locked() else slots

    @asynccontextmanager
    async def _turn(self, tokens: int, slots: asyncio.Semaphore) -> AsyncIterator[None]:
        now = self._timing.clock()
        amounts = ((1, self._rates.requests_per_minute), (tokens, self._rates.tokens_per_minute))
        seconds = [60 * min(1.0, amount / limit) if limit else 0.0 for amount, limit in amounts]
        begins = [max(now, free_at) for free_at in self._free_at]
        self._free_at = [begin + taken for begin, taken in zip(begins, seconds, strict=True)]
        try:
            # A call whose turn has come need not stop the clock.
            with stand_still() if max(begins) > now or slots.locked() else nullcontext():
                if max(begins) > now:
                    await self._timing.sleep(max(begins) - now)
                await slots.acquire()
        except BaseException:
            # A caller that gives up before its turn must not delay the others for a call that is not made.
            self._free_at = [free_at - taken for free_at, taken in zip(self._free_at, seconds, strict=True)]
            raise
        try:
            yield
        finally:
            slots.release()

    def _semaphore(self) -> asyncio.Semaphore:
        # Made inside the loop that uses it: a semaphore of a closed loop raises when callers queue.
        loop = asyncio.get_running_loop()
        if self._slots is None or self._loop is not loop:
            self._slots, self._loop = asyncio.Semaphore(self._rates.concurrency), loop
        return self._slots


class Balancer:
    """Which of several servers is asked: that with the fewest open requests, and of those the one asked longest ago.

    A server that fails as one that is away is left out for `rest` seconds. Then one request at a time tries it, until it
    answers again.
    """

    def __init__(self, number: int, clock: Callable[[], float], rest: float = 30.0) -> None:
        self._clock = clock
        self._rest = rest
        self._open = dict.fromkeys(range(number), 0)
        """Open requests of each server; the server that was asked last stands last."""
        self._failed: dict[int, float] = {}
        """When each server that is away last failed."""

    @contextmanager
    def request(self, among: Container[int]) -> Iterator[int]:
        """Choose a server and count a request to it until the block ends, and whether it fails as one that is away."""
        chosen = min((server for server in self._open if server in among), key=self._rank)
        self._open[chosen] = self._open.pop(chosen) + 1
        try:
            yield chosen
            self._failed.pop(chosen, None)
        except BoundaryError as failure:
            if failure.is_retryable:
                self._failed[chosen] = self._clock()
            raise
        finally:
            self._open[chosen] -= 1

    def _rank(self, server: int) -> tuple[bool, float]:
        """Servers that answer come first, then those that failed longest ago."""
        failed = self._failed.get(server)
        if failed is None or (self._clock() >= failed + self._rest and not self._open[server]):
            return False, self._open[server]
        return True, failed


LEASE_SECONDS = 120.0
"""How long a slot may be occupied: one of a process that died is free again after it."""


class LimiterProtocol(Protocol):
    """Whatever hands out turns at one server: a `Limiter`, or another process's."""

    def slot(self, tokens: int) -> AbstractAsyncContextManager[None]: ...


LimiterOf = Callable[[str, Rates], LimiterProtocol]
"""The limiter of a server by its name and its rates."""


def own_limiter(server: str, rates: Rates) -> LimiterProtocol:
    """A limiter for this process alone."""
    return Limiter(rates, Timing.real())


class SharedLimits:
    """The limiters of several servers, on one event loop. A server's rates are those that it is first named with."""

    def __init__(self, timing: Timing | None = None) -> None:
        self._timing = timing or Timing.real()
        self._limiters: dict[str, Limiter] = {}
        self._calls: dict[str, asyncio.Task[None]] = {}

    async def enter(self, server: str, rates: Rates, *, tokens: int, call: str) -> None:
        """Wait for a slot for the call, or until the call leaves."""
        limiter = self._limiters.setdefault(server, Limiter(rates, self._timing))
        entered = asyncio.get_running_loop().create_future()
        task = self._calls[call] = asyncio.create_task(self._occupy(limiter, tokens, entered))
        task.add_done_callback(lambda _: self._calls.pop(call, None))
        await asyncio.wait({task, entered}, return_when=asyncio.FIRST_COMPLETED)

    async def leave(self, call: str) -> None:
        """Free the call's slot, or give up waiting for it; a call that has left already is passed over."""
        if call in self._calls:
            self._calls[call].cancel()

    async def _occupy(self, limiter: Limiter, tokens: int, entered: "asyncio.Future[None]") -> None:
        async with limiter.slot(tokens):
            entered.set_result(None)
            await self._timing.sleep(LEASE_SECONDS)


class RemoteLimiter:
    """The limiter of one server, in the process behind `enter` and `leave`."""

    def __init__(
        self, server: str, rates: Rates, *, enter: Callable[..., Awaitable[None]], leave: Callable[[str], object]
    ) -> None:
        """`leave` is not awaited: a call that is over does not wait for it."""
        self._server = server
        self._rates = rates
        self._enter = enter
        self._leave = leave

    @asynccontextmanager
    async def slot(self, tokens: int) -> AsyncIterator[None]:
        """Occupy one slot of all processes' while a call runs."""
        call = uuid.uuid4().hex
        try:
            with stand_still():
                await self._enter(self._server, self._rates, tokens=tokens, call=call)
            yield
        finally:
            self._leave(call)
