"""Back-off, Retry-After, and the limits on attempts and time, with a clock that only moves when somebody sleeps."""

import asyncio
from datetime import UTC, datetime

import pytest

from rubricem_env.domain.errors import ModelError, ToolError
from rubricem_env.llm.http_failures import status_error
from rubricem_env.llm.limits.retry import RetryPolicy, call_with_retry, parse_retry_after
from tests.fakes import ManualTime

REFUSED = ModelError("refused", is_retryable=True)


class Failing:
    """An operation that fails so many times, and counts its calls."""

    def __init__(self, times: int, failure: Exception = REFUSED) -> None:
        self.calls, self.time = 0, ManualTime()
        self._times, self._failure = times, failure

    async def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self._times:
            raise self._failure
        return "done"

    async def retried(self, **policy: float) -> str:
        timing = self.time.timing()
        return await call_with_retry(self, doing="search", error=ToolError, policy=RetryPolicy(**policy), timing=timing)


async def test_waits_double_until_the_call_succeeds() -> None:
    operation = Failing(3)
    assert await operation.retried(jitter=0.0) == "done"
    assert operation.time.waits == [1.0, 2.0, 4.0]


async def test_five_retries_follow_the_first_try_and_the_last_failure_is_typed() -> None:
    operation = Failing(99)
    with pytest.raises(ModelError, match="refused"):
        await operation.retried()
    assert operation.calls == 6


async def test_a_refusal_for_the_rate_is_no_try_and_is_waited_for_until_the_deadline() -> None:
    refusal = ModelError("slow down", is_retryable=True, is_rate_limited=True)
    operation = Failing(12, refusal)
    assert await operation.retried(jitter=0.0, attempts=1) == "done"
    # 1 + 2 + 4 + 8 + 16 + 32 s, and six times a minute
    assert sum(operation.time.waits) == 423.0
    operation = Failing(99, refusal)
    with pytest.raises(ModelError, match="slow down"):
        await operation.retried(jitter=0.0, deadline=100.0)
    assert operation.time.waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]


async def test_a_server_that_names_seconds_is_not_called_earlier() -> None:
    operation = Failing(1, ModelError("busy", is_retryable=True, retry_after=7.0))
    await operation.retried()
    # 7 s asked for, and at most half of the first back-off of 1 s on top.
    assert 7.0 <= operation.time.waits[0] <= 7.5


async def test_a_wait_that_outlasts_the_deadline_is_not_begun() -> None:
    operation = Failing(99, ModelError("busy", is_retryable=True, retry_after=601.0))
    with pytest.raises(ModelError):
        await operation.retried(deadline=600.0)
    assert (operation.calls, operation.time.waits) == (1, [])


async def test_a_foreign_failure_is_typed_and_final() -> None:
    operation = Failing(99, ConnectionError("refused"))
    with pytest.raises(ToolError, match="could not search: ConnectionError: refused"):
        await operation.retried()
    assert operation.calls == 1


async def test_a_call_that_hangs_is_aborted_at_the_deadline() -> None:
    policy, timing = RetryPolicy(deadline=0.01), ManualTime().timing()
    with pytest.raises(ModelError, match="TimeoutError"):
        await call_with_retry(asyncio.Event().wait, doing="ask", error=ModelError, policy=policy, timing=timing)


async def test_a_try_with_less_time_left_than_its_own_limit_is_aborted_at_the_deadline() -> None:
    time, calls = ManualTime(), []

    async def ask() -> None:
        calls.append(time.now)
        time.now += 7.0
        if len(calls) < 2:
            raise REFUSED
        await asyncio.Event().wait()

    # The first try has 7.01 s and needs no timer; the second begins after 7 s and less than 0.01 s of waiting.
    policy, timing = RetryPolicy(deadline=7.01, initial_delay=0.001), time.timing()
    with pytest.raises(ModelError, match="TimeoutError"):
        await call_with_retry(ask, doing="ask", error=ModelError, policy=policy, timing=timing, longest=7.0)
    assert len(calls) == 2


def test_the_back_off_has_a_limit_and_does_not_overflow() -> None:
    assert RetryPolicy(jitter=0.0).delay(5000, 0.0) == 60.0


@pytest.mark.parametrize(("retry_after", "draw", "seconds"), [(7.0, 0.0, 7.0), (7.0, 0.5, 7.5), (0.0, 0.0, 0.0)])
def test_a_server_that_says_when_to_come_back_is_left_alone_until_then(retry_after, draw, seconds):
    policy = RetryPolicy(initial_delay=2.0, jitter=0.5)
    assert policy.delay(0, draw, retry_after=retry_after) == seconds


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("0", 0.0),
        (" ", None),
        (None, None),
        ("soon", None),
        ("-3", None),
        ("nan", None),
        ("Sat, 21 Nov 2026 10:00:30 GMT", 30.0),
        ("Sat, 21 Nov 2026 09:00:00 GMT", 0.0),
        ("Mon, 01 Jan 99999999999999999999 00:00:00 GMT", None),
        ("Mon, 01 Jan 2024 99999999999:00:00 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str | None, seconds: float | None) -> None:
    now = datetime(2026, 11, 21, 10, 0, 0, tzinfo=UTC)
    assert parse_retry_after(header, now=now) == seconds


def test_only_a_refusal_for_the_rate_is_waited_for_as_one() -> None:
    assert status_error(429, "slow down").is_rate_limited
    assert not status_error(503, "busy").is_rate_limited
    # OpenAI says so where an account has no credit.
    assert not status_error(429, '{"error": {"code": "insufficient_quota"}}').is_rate_limited
