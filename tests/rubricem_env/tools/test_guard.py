"""What stands between a search engine and the episode, with time that passes on command."""

import asyncio

import pytest
from pydantic import SecretStr

from rubricem_env.domain.trajectory import ToolCall, ToolResult, ToolStatus
from rubricem_env.llm.keys import redactor_of
from rubricem_env.llm.limits.limiter import Rates
from rubricem_env.llm.limits.retry import RetryPolicy
from rubricem_env.llm.usage import Meter, SpendLimits, Usage
from rubricem_env.testing.episodes import FOUND
from rubricem_env.tools.failures import ToolFailure, http_failure, result_of_failure
from rubricem_env.tools.guard import GuardedTool, GuardSettings
from tests.fakes import ManualTime, ScriptedBackend

CALL = ToolCall(name="google_search", query="Tall Fox")
BUSY = http_failure("the engine", 429)
DOWN = http_failure("the engine", 503)


def guard(backend, time, *, budget=None, **settings) -> GuardedTool:
    return GuardedTool(backend, GuardSettings(**settings), budget=budget, timing=time.timing())


async def test_a_retryable_failure_is_retried():
    time, backend = ManualTime(), ScriptedBackend(DOWN, FOUND)
    assert await guard(backend, time).call(CALL) == FOUND
    assert len(backend.calls) == 2


async def test_retry_after_is_waited_for():
    time = ManualTime()
    backend = ScriptedBackend(http_failure("the engine", 429, retry_after=7.0), FOUND)
    await guard(backend, time).call(CALL)
    assert time.waits[0] >= 7.0


@pytest.mark.parametrize(
    ("failure", "status", "calls"),
    [(BUSY, ToolStatus.RATE_LIMITED, 6), (http_failure("the engine", 401), ToolStatus.ERROR, 1)],
)
async def test_a_rate_limit_is_tried_to_the_end_and_a_refusal_once(failure, status, calls):
    backend = ScriptedBackend(failure)
    result = await guard(backend, ManualTime(), retry=RetryPolicy()).call(CALL)
    assert (result.status, len(backend.calls)) == (status, calls)


async def test_an_engine_that_hangs_is_a_timeout():
    backend = ScriptedBackend(delay=30)
    retry = RetryPolicy(attempts=2, initial_delay=0.01)
    result = await guard(backend, ManualTime(), timeout=0.02, retry=retry).call(CALL)
    assert result.status is ToolStatus.TIMEOUT
    assert result.message == "google_search did not answer within 0.02 s; try again or continue."


async def test_a_bug_of_the_backend_is_an_error_result():
    class Broken(ScriptedBackend):
        async def answer(self, call):
            raise KeyError("organic")

    result = await guard(Broken(), ManualTime()).call(CALL)
    assert result.status is ToolStatus.ERROR
    assert "KeyError" in result.message


async def test_the_breaker_opens_and_one_call_tries_after_the_cooldown():
    time = ManualTime()
    backend = ScriptedBackend(DOWN, DOWN, FOUND)
    tool = guard(backend, time, breaker_failures=2, breaker_cooldown=30, retry=RetryPolicy(attempts=1))
    await tool.call(CALL)
    await tool.call(CALL)
    refused = await tool.call(CALL)
    assert "failed 2 times in a row" in refused.message
    assert len(backend.calls) == 2
    time.now += 31
    assert (await tool.call(CALL)).status is ToolStatus.OK


async def test_a_probe_that_is_cancelled_lets_another_try():
    time = ManualTime()
    backend = ScriptedBackend(DOWN, FOUND)
    tool = guard(backend, time, breaker_failures=1, breaker_cooldown=1, retry=RetryPolicy(attempts=1))
    await tool.call(CALL)
    time.now += 2
    backend.delay = 600.0
    probe = asyncio.create_task(tool.call(CALL))
    async with asyncio.timeout(30):
        while len(backend.calls) < 2:
            await asyncio.sleep(0)
    probe.cancel()
    await asyncio.gather(probe, return_exceptions=True)
    assert probe.cancelled()
    backend.delay = 0.0
    assert (await tool.call(CALL)).status is ToolStatus.OK


async def test_the_budget_stops_before_it_is_passed():
    budget = Meter(SpendLimits(dollars=0.025))
    backend = ScriptedBackend(fee=0.01)
    tool = guard(backend, ManualTime(), budget=budget)
    results = await asyncio.gather(*(tool.call(CALL) for _ in range(5)))
    # Two calls of one cent fit into two and a half; the third might pass it.
    assert [result.status for result in results].count(ToolStatus.OK) == 2
    assert results[-1].status is ToolStatus.BLOCKED
    assert results[-1].message == "the run's budget for tools is used up; answer from what you have."


async def test_a_failed_call_costs_a_call_and_no_fee():
    budget = Meter()
    await guard(ScriptedBackend(DOWN, FOUND, fee=0.5), ManualTime(), budget=budget).call(CALL)
    assert (budget.total.usage.calls, budget.total.dollars) == (2, 0.5)
    assert list(budget.by_phase) == ["google_search"]


async def test_a_known_secret_is_removed_from_what_the_engine_gets_and_answers():
    echo = ToolResult(status=ToolStatus.OK, summary="you sent canary-key")
    backend = ScriptedBackend(echo)
    tool = GuardedTool(backend, timing=ManualTime().timing(), redactor=redactor_of([SecretStr("canary-key")]))
    result = await tool.call(ToolCall(name="google_search", query="canary-key Tall Fox"))
    assert (backend.calls[0].query, result.summary) == ("[redacted] Tall Fox", "you sent [redacted]")


async def test_requests_per_minute_are_kept():
    time = ManualTime()
    tool = guard(ScriptedBackend(), time, rates=Rates(requests_per_minute=60))
    for _ in range(3):
        await tool.call(CALL)
    assert time.waits == [1.0, 1.0]


def test_a_failure_keeps_its_status_and_a_long_message_is_one_line():
    result = result_of_failure(ToolFailure("a\n" * 5000, status=ToolStatus.BLOCKED))
    assert isinstance(result, ToolResult)
    assert result.status is ToolStatus.BLOCKED
    assert len(result.message) == 300


async def test_a_probe_that_the_budget_refuses_does_not_close_the_way_for_ever():
    time, budget = ManualTime(), Meter(SpendLimits(dollars=1.5))
    backend = ScriptedBackend(DOWN, FOUND, fee=1.0)
    settings = {"breaker_failures": 1, "breaker_cooldown": 1, "retry": RetryPolicy(attempts=1)}
    tool = guard(backend, time, budget=budget, **settings)
    await tool.call(CALL)
    time.now += 2
    budget.book("google_search", "", usage=Usage(calls=1), fee=1.0)
    assert (await tool.call(CALL)).status is ToolStatus.BLOCKED
    budget.load_state_dict({})
    assert (await tool.call(CALL)).status is ToolStatus.OK


async def test_a_breaker_without_a_number_of_failures_never_opens():
    backend = ScriptedBackend(*[DOWN] * 20, FOUND)
    tool = guard(backend, ManualTime(), breaker_failures=None, retry=RetryPolicy(attempts=1))
    assert [await tool.call(CALL) for _ in range(21)][-1] == FOUND
