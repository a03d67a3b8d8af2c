"""The deadline of a call's retries."""

import asyncio

import pytest

from rubricem_env.llm.limits.deadline import DEADLINE, Deadline, stand_still


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_it_counts_down_and_never_below_zero():
    clock = Clock()
    deadline = Deadline(10.0, clock)
    assert deadline.left == 10.0
    clock.now = 104.0
    assert deadline.left == 6.0
    clock.now = 111.0
    assert deadline.left == 0.0


async def test_it_stands_still_while_a_call_waits():
    clock = Clock()
    deadline = Deadline(10.0, clock)
    with deadline.standing_still():
        clock.now = 150.0
    assert deadline.left == 10.0
    clock.now = 153.0
    assert deadline.left == 7.0


async def test_what_runs_is_aborted_at_the_deadline_but_not_while_it_waits():
    clock = Clock()
    deadline = Deadline(0.01, clock)
    waited = []

    async def call():
        async with deadline.running():
            with deadline.standing_still():
                await asyncio.sleep(0.05)
                waited.append(True)
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await call()
    assert waited


async def test_without_a_deadline_nothing_stands_still_and_with_one_it_does():
    clock = Clock()
    with stand_still():
        clock.now = 101.0
    deadline = Deadline(10.0, clock)
    token = DEADLINE.set(deadline)
    with stand_still():
        clock.now = 141.0
    DEADLINE.reset(token)
    assert deadline.left == 10.0
