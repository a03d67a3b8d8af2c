"""One limiter for several callers that stand for processes."""

import asyncio

from rubricem_env.domain.errors import ToolError
from rubricem_env.llm.limits.limiter import Rates
from rubricem_env.llm.limits.retry import RetryPolicy, call_with_retry
from rubricem_env.llm.limits.shared_limits import LEASE_SECONDS, RemoteLimiter, SharedLimits
from tests.fakes import ManualTime

ONE = Rates(concurrency=1)


class Workers:
    """Callers in other processes: what they call arrives a little later."""

    def __init__(self, *, leaves: bool = True) -> None:
        self.time = ManualTime()
        self.time.sleep = self._sleep  # type: ignore[method-assign]
        self.limits = SharedLimits(self.time.timing())
        self._leaves = leaves
        self.tasks: list[asyncio.Task[None]] = []

    def limiter(self, rates: Rates, server: str = "snippet_search") -> RemoteLimiter:
        return RemoteLimiter(server, rates, enter=self.limits.enter, leave=self._leave)

    async def _sleep(self, seconds: float) -> None:
        """Long enough that a lease runs out by itself only in the test of leases."""
        self.time.waits.append(seconds)
        await asyncio.sleep(3_600 if self._leaves else 0.01)

    def _leave(self, call: str) -> None:
        if self._leaves:
            self.tasks.append(asyncio.create_task(self.limits.leave(call)))


async def test_the_calls_of_all_workers_together_keep_to_the_slots() -> None:
    workers = Workers()
    inside, most = 0, 0

    async def call(limiter: RemoteLimiter) -> None:
        nonlocal inside, most
        async with limiter.slot(1):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    rates = Rates(concurrency=2)
    both = workers.limiter(rates), workers.limiter(rates)
    await asyncio.gather(*(call(limiter) for limiter in both for _ in range(5)))
    assert most == 2


async def test_engines_have_slots_of_their_own() -> None:
    workers = Workers()
    async with asyncio.timeout(5), workers.limiter(ONE).slot(1), workers.limiter(ONE, "google_search").slot(1):
        pass


async def test_a_worker_that_gives_up_its_wait_leaves_the_queue() -> None:
    workers = Workers()
    limiter = workers.limiter(ONE)
    async with limiter.slot(1):
        waiting = asyncio.create_task(limiter.slot(1).__aenter__())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(5), limiter.slot(1):
        pass


async def test_the_slot_of_a_worker_that_died_is_free_after_its_lease() -> None:
    workers = Workers(leaves=False)
    async with workers.limiter(ONE).slot(1):
        pass
    async with asyncio.timeout(5), workers.limiter(ONE).slot(1):
        pass
    assert workers.time.waits == [LEASE_SECONDS] * 2


async def test_the_deadline_of_a_call_stands_still_while_it_waits_for_a_slot_behind_another_process() -> None:
    time = ManualTime()
    entered: list[float] = []

    async def enter(server: str, rates: Rates, *, tokens: int, call: str) -> None:
        time.now += 100.0  # the queue is ten times as long as the deadline
        entered.append(time.now)

    limiter = RemoteLimiter("snippet_search", ONE, enter=enter, leave=lambda call: None)
    tries = 0

    async def search() -> str:
        nonlocal tries
        tries += 1
        async with limiter.slot(1):
            if tries == 1:
                raise ToolError("busy", is_retryable=True)
            return "found"

    found = await call_with_retry(
        search, doing="search", error=ToolError, policy=RetryPolicy(deadline=10.0), timing=time.timing()
    )
    assert (found, len(entered)) == ("found", 2)
