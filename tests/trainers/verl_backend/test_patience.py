"""Patience with a service that is away."""

import asyncio

from trainers.verl_backend.patience import Patience


class FakeClock:
    """Advances when somebody sleeps."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        self.now += seconds
        await asyncio.sleep(0)


def patience(seconds: float, clock: FakeClock) -> Patience:
    return Patience(seconds, 10.0, clock=clock, sleep=clock.sleep)


async def test_one_caller_at_a_time_probes_a_service_that_is_away_and_all_go_on_when_it_is_back():
    clock, calls = FakeClock(), []
    waiting = patience(100.0, clock)

    async def work(name):
        calls.append((clock.now, name))
        await asyncio.sleep(0)
        return clock.now >= 30

    got = await asyncio.gather(
        *(waiting.run(lambda name=name: work(name), is_lost=lambda is_back: not is_back) for name in "abc")
    )
    assert got == [True, True, True]
    # all three at 0; then one at 10, 20 and 30; then the two others
    assert [time for time, _ in calls] == [0, 0, 0, 10, 20, 30, 30, 30]
    assert (waiting.is_paused, waiting.seconds) == (False, 30.0)


async def test_a_service_that_stays_away_is_given_up_after_the_patience_by_all():
    clock, calls = FakeClock(), []
    waiting = patience(25.0, clock)

    async def work():
        calls.append(clock.now)
        await asyncio.sleep(0)
        return "lost"

    got = await asyncio.gather(*(waiting.run(work, is_lost=lambda result: result == "lost") for _ in range(3)))
    assert got == ["lost"] * 3
    assert calls == [0, 0, 0, 10, 20, 30]
    assert (waiting.is_paused, waiting.seconds) == (False, 25.0)


async def test_without_patience_nothing_is_repeated():
    clock = FakeClock()
    assert await patience(0.0, clock).run(lambda: asyncio.sleep(0, "lost"), is_lost=lambda result: True) == "lost"
    assert clock.now == 0
