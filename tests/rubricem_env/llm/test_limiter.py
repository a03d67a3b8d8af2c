"""Rates, with a clock that only moves when somebody sleeps."""

import asyncio

import numpy as np

from rubricem_env.llm.limiter import Limiter, Rates
from rubricem_env.llm.retry import Timing


class FakeTime:
    def __init__(self):
        self.now, self.waits = 0.0, []

    async def sleep(self, seconds):
        self.waits.append(seconds)


def limiter(time, **rates):
    return Limiter(Rates(**rates), Timing(lambda: time.now, time.sleep, np.random.default_rng(0)))


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
