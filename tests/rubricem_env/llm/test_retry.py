"""Back-off, Retry-After and the two bounds, with a clock that only moves when somebody sleeps."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import numpy as np
import pytest

from rubricem_env.domain.errors import ModelError, ToolError
from rubricem_env.llm.limits import RetryPolicy, Timing, call_with_retry, parse_retry_after


class FakeTime:
    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    def timing(self) -> Timing:
        return Timing(lambda: self.now, self.sleep, np.random.default_rng(0))


REFUSED = ModelError("refused", is_retryable=True)


def failing(times: int, calls: list[int], failure: Exception = REFUSED) -> Callable[[], Awaitable[str]]:
    async def operation() -> str:
        calls.append(1)
        if len(calls) <= times:
            raise failure
        return "done"

    return operation


async def test_waits_double_until_the_call_succeeds() -> None:
    time = FakeTime()
    calls: list[int] = []
    policy = RetryPolicy(jitter=0.0)
    result = await call_with_retry(
        failing(3, calls), doing="ask", error=ModelError, policy=policy, timing=time.timing()
    )
    assert result == "done"
    assert time.waits == [1.0, 2.0, 4.0]


async def test_five_retries_follow_the_first_try_and_the_last_failure_is_typed() -> None:
    time = FakeTime()
    calls: list[int] = []
    with pytest.raises(ModelError, match="refused"):
        await call_with_retry(
            failing(99, calls),
            doing="search",
            error=ToolError,
            policy=RetryPolicy(),
            timing=time.timing(),
        )
    assert len(calls) == 6


async def test_a_server_that_names_seconds_is_not_asked_earlier() -> None:
    time = FakeTime()
    calls: list[int] = []
    await call_with_retry(
        failing(1, calls, ModelError("busy", is_retryable=True, retry_after=7.0)),
        doing="ask",
        error=ModelError,
        policy=RetryPolicy(),
        timing=time.timing(),
    )
    # 7 s asked for, and at most half of the first back-off of 1 s on top.
    assert 7.0 <= time.waits[0] <= 7.5


async def test_a_wait_that_outlasts_the_deadline_is_not_begun() -> None:
    time = FakeTime()
    calls: list[int] = []
    with pytest.raises(ModelError):
        await call_with_retry(
            failing(99, calls, ModelError("busy", is_retryable=True, retry_after=601.0)),
            doing="ask",
            error=ModelError,
            policy=RetryPolicy(deadline=600.0),
            timing=time.timing(),
        )
    assert (len(calls), time.waits) == (1, [])


async def test_a_foreign_failure_is_typed_and_final() -> None:
    time = FakeTime()
    calls: list[int] = []
    with pytest.raises(ToolError, match="could not search: ConnectionError: refused"):
        await call_with_retry(
            failing(99, calls, ConnectionError("refused")),
            doing="search",
            error=ToolError,
            policy=RetryPolicy(),
            timing=time.timing(),
        )
    assert len(calls) == 1


async def test_a_call_that_hangs_is_cut_off_at_the_deadline() -> None:
    time = FakeTime()

    async def hang() -> None:
        await asyncio.Event().wait()

    with pytest.raises(ModelError, match="TimeoutError"):
        await call_with_retry(
            hang,
            doing="ask",
            error=ModelError,
            policy=RetryPolicy(deadline=0.01),
            timing=time.timing(),
        )


def test_the_back_off_is_capped_and_does_not_overflow() -> None:
    assert RetryPolicy(jitter=0.0).delay(5000, 0.0) == 60.0


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        (" ", None),
        (None, None),
        ("soon", None),
        ("-3", None),
        ("nan", None),
        ("Sat, 21 Nov 2026 10:00:30 GMT", 30.0),
        ("Sat, 21 Nov 2026 09:00:00 GMT", 0.0),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str | None, seconds: float | None) -> None:
    now = datetime(2026, 11, 21, 10, 0, 0, tzinfo=UTC)
    assert parse_retry_after(header, now=now) == seconds


@pytest.mark.parametrize("moment", ["99999999999999999999 00:00:00 GMT", "2024 99999999999:00:00 GMT"])
def test_a_moment_beyond_all_calendars_is_none(moment: str) -> None:
    assert parse_retry_after(f"Mon, 01 Jan {moment}") is None
