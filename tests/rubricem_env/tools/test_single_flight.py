"""Equal work under way at the same time is done once, whoever comes, goes or fails."""

import asyncio

import pytest

from rubricem_env.tools.cache import SingleFlight


class Work:
    """Takes its time to end, also when it is cancelled."""

    def __init__(self) -> None:
        self.begun = 0
        self.gate = asyncio.Event()

    async def __call__(self) -> int:
        self.begun += 1
        number = self.begun
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)
            raise
        return number


async def test_abandoned_work_that_is_slow_to_end_does_not_push_out_its_successor():
    flights, work = SingleFlight[int](), Work()
    abandoned = asyncio.create_task(flights.run("k", work))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    abandoned.cancel()
    await asyncio.wait({abandoned})
    second = asyncio.create_task(flights.run("k", work))
    await asyncio.sleep(0.03)
    third = asyncio.create_task(flights.run("k", work))
    await asyncio.sleep(0)
    work.gate.set()
    assert await asyncio.gather(second, third) == [2, 2]


async def test_all_who_wait_learn_of_a_failure_and_the_next_one_tries_again():
    async def fail() -> int:
        await asyncio.sleep(0)
        raise ValueError("no")

    async def succeed() -> int:
        return 1

    flights = SingleFlight[int]()
    outcomes = await asyncio.gather(*(flights.run("k", fail) for _ in range(3)), return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["no"] * 3
    assert await flights.run("k", succeed) == 1


async def test_one_who_comes_after_the_end_begins_anew():
    flights, begun = SingleFlight[int](), []

    async def work() -> int:
        begun.append(len(begun))
        return begun[-1]

    assert [await flights.run("k", work), await flights.run("k", work)] == [0, 1]


async def test_the_cancellation_of_the_work_itself_reaches_those_who_wait():
    async def give_up() -> int:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await SingleFlight[int]().run("k", give_up)
