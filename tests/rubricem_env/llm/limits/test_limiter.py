"""Rates, with a clock that only moves when somebody sleeps."""

import asyncio

import pytest

from rubricem_env.domain.errors import ToolError
from rubricem_env.llm.limits.limiter import Limiter, Rates
from rubricem_env.llm.limits.retry import RetryPolicy, call_with_retry
from tests.fakes import ManualTime


def limiter(time, **rates):
    return Limiter(Rates(**rates), time.timing())


async def take(limits, tokens=1):
    async with limits.slot(tokens):
        pass


async def test_the_requests_of_a_minute_are_spread_over_it():
    time = ManualTime()
    limits = limiter(time, requests_per_minute=4)
    for _ in range(4):
        await take(limits)
    # one every 15 s, the first at once
    assert time.waits == [15.0, 15.0, 15.0]


async def test_a_call_waits_for_the_time_of_the_tokens_before_it():
    time = ManualTime()
    limits = limiter(time, tokens_per_minute=600)
    await take(limits, 400)
    time.now = 30.0
    await take(limits, 1_000)
    await take(limits, 1)
    # 400 tokens take 40 s at 10 a second, of which 30 are over; 1,000 count as a minute's.
    assert time.waits == [10.0, 60.0]


def test_slots_limit_the_calls_at_once_on_whichever_loop_runs():
    limits = limiter(ManualTime(), concurrency=2)

    async def crowd():
        inside, most = 0, 0

        async def work():
            nonlocal inside, most
            async with limits.slot(1):
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1

        await asyncio.gather(*(work() for _ in range(9)))
        return most

    assert asyncio.run(crowd()) == 2
    assert asyncio.run(crowd()) == 2


@pytest.mark.parametrize("rates", [{"requests_per_minute": 60}, {"tokens_per_minute": 600, "concurrency": 1}])
async def test_callers_who_give_up_do_not_delay_those_who_come_after_them(rates):
    time = ManualTime()
    limits = Limiter(Rates(**rates), time.timing()._replace(sleep=lambda seconds: asyncio.sleep(3_600)))
    async with limits.slot(0):
        waiting = [asyncio.create_task(take(limits, 10)) for _ in range(600)]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    # The one call that was made takes a second.
    time.now = 1.0
    async with asyncio.timeout(5):
        await take(limits, 10)


async def test_a_call_that_fails_has_used_its_allowance():
    time = ManualTime()
    limits = limiter(time, requests_per_minute=1)
    with pytest.raises(KeyError):
        async with limits.slot(1):
            raise KeyError
    await take(limits)
    assert time.waits == [60.0]


def retried(limits, time, operation, **policy):
    async def in_turn():
        async with limits.slot(1):
            return await operation()

    return call_with_retry(in_turn, doing="search", error=ToolError, policy=RetryPolicy(**policy), timing=time.timing())


async def test_the_limit_of_a_call_counts_from_its_turn():
    time = ManualTime()
    limits = limiter(time, requests_per_minute=1)

    async def done():
        return time.now

    turns = [await retried(limits, time, done, deadline=10.0) for _ in range(3)]
    # Two waits of a minute, six times the limit of a call.
    assert turns == [0.0, 60.0, 120.0]


async def test_a_slot_is_waited_for_longer_than_the_limit_of_a_call_and_the_limit_holds_after_it():
    time = ManualTime()
    limits = limiter(time, concurrency=1)
    timing = time.timing()

    async def hanging():
        await asyncio.sleep(3_600)

    async def taken():
        async with limits.slot(1):
            time.now += 500.0
            await asyncio.sleep(0.05)

    first = asyncio.create_task(taken())
    await asyncio.sleep(0)
    with pytest.raises(ToolError) as failure:
        await retried(limits, time, hanging, deadline=0.02, attempts=1)
    assert first.done()
    assert isinstance(failure.value.__cause__, TimeoutError)
    assert timing.clock() == 500.0


async def test_input_and_output_have_rates_of_their_own():
    time = ManualTime()
    limits = limiter(time, input_tokens_per_minute=600, output_tokens_per_minute=60)
    async with limits.slot(100, 30):
        pass
    await take(limits)
    # 100 tokens of input take 10 s, 30 of output 30 s.
    assert time.waits == [30.0]


async def test_a_call_that_used_less_than_it_reserved_returns_the_rest_to_those_who_wait():
    time = ManualTime()
    limits = limiter(time, tokens_per_minute=600)
    async with limits.slot(100, 500):
        limits.settle((100, 500), (100, 20))
    await take(limits)
    # 120 tokens at 10 a second
    assert time.waits == [12.0]


async def test_idle_time_is_not_saved_up():
    time = ManualTime()
    limits = limiter(time, tokens_per_minute=600)
    time.now = 1_000.0
    for _ in range(2):
        await take(limits, 100)
    assert time.waits == [10.0]


@pytest.mark.parametrize(("retry_after", "wait"), [(20.0, 20.0), (None, 1.0)])
async def test_nobody_begins_while_a_refused_call_waits(retry_after, wait):
    time = ManualTime()
    limits = limiter(time)
    limits.refuse(retry_after)
    for _ in range(2):
        await take(limits)
    assert time.waits == [wait]


async def test_pauses_grow_until_a_call_is_taken():
    time = ManualTime()
    limits = limiter(time)
    for _ in range(5):
        limits.refuse(None)
        limits.refuse(None)  # of a call that began before the pause
        await take(limits)
    assert time.waits == [1.0, 2.0, 4.0, 8.0, 8.0]
    limits.settle((10, 10), (9, 9))
    limits.refuse(None)
    await take(limits)
    assert time.waits[-1] == 1.0
