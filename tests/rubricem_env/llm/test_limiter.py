"""Rates, with a clock that only moves when somebody sleeps."""

import asyncio

import numpy as np
import pytest

from rubricem_env.llm.limits import Limiter, Rates, Timing


class FakeTime:
    def __init__(self):
        self.now, self.waits = 0.0, []

    async def sleep(self, seconds):
        self.waits.append(seconds)


def limiter(time, **rates):
    timing = Timing(lambda: time.now, lambda seconds: time.sleep(seconds), np.random.default_rng(0))
    return Limiter(Rates(**rates), timing)


async def take(limits, tokens=1):
    async with limits.slot(tokens):
        pass


async def test_requests_beyond_the_minutes_allowance_wait_their_turn():
    time = FakeTime()
    limits = limiter(time, requests_per_minute=2)
    for _ in range(4):
        await take(limits)
    # two at once, then one every 30 s
    assert time.waits == [30.0, 60.0]


async def test_tokens_refill_with_time():
    time = FakeTime()
    limits = limiter(time, tokens_per_minute=600)
    await take(limits, 600)
    time.now = 30.0
    # 300 are back; 400 are 100 too many, at 10 a second
    await take(limits, 400)
    assert time.waits == [10.0]


async def test_a_request_larger_than_the_bucket_is_not_locked_out():
    time = FakeTime()
    await take(limiter(time, tokens_per_minute=10), 1_000)
    assert time.waits == []


def test_places_are_held_and_belong_to_the_loop_that_runs():
    limits = limiter(FakeTime(), concurrency=2)

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


async def test_callers_who_give_up_do_not_starve_those_who_come_after_them():
    time = FakeTime()
    limits = limiter(time, requests_per_minute=60, tokens_per_minute=6_000)
    for _ in range(60):
        await take(limits, 100)
    time.sleep = lambda seconds: asyncio.sleep(3_600)
    waiting = [asyncio.create_task(take(limits, 100)) for _ in range(600)]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    time.now = 60.0
    # A minute without a single call: the allowance is whole again.
    async with asyncio.timeout(5):
        await take(limits, 100)


async def test_a_caller_who_gives_up_in_the_queue_for_a_place_gives_its_allowance_back():
    time = FakeTime()
    limits = limiter(time, concurrency=1, requests_per_minute=2)
    async with limits.slot(1):
        waiting = asyncio.create_task(take(limits))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    await take(limits)
    assert time.waits == []


async def test_a_call_that_fails_has_used_its_allowance():
    time = FakeTime()
    limits = limiter(time, requests_per_minute=1)
    with pytest.raises(KeyError):
        async with limits.slot(1):
            raise KeyError
    await take(limits)
    assert time.waits == [60.0]
