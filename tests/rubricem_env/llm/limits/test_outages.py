"""A server that is away is said after a while and again, until it answers or is given up."""

import asyncio

import numpy as np
import pytest

from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.limits.outages import Outages
from rubricem_env.llm.limits.retry import RetryPolicy, call_with_retry
from rubricem_env.llm.limits.timing import Timing

FAST = RetryPolicy(attempts=40, initial_delay=0.005, factor=1, jitter=0)


async def ask(*, failures: int, doing: str = "ask the judge") -> str:
    left = [ModelError("nobody listens", is_retryable=True)] * failures

    async def answer() -> str:
        await asyncio.sleep(0.001)
        if left:
            raise left.pop()
        return "yes"

    timing = Timing(asyncio.get_running_loop().time, asyncio.sleep, np.random.default_rng(0))
    return await call_with_retry(answer, doing=doing, error=ModelError, policy=FAST, timing=timing)


async def test_a_server_that_is_away_is_said_again_and_again_and_not_after_it_answers():
    said: list[str] = []
    with Outages(said.append, first=0.02, then=0.02).noted():
        assert await ask(failures=30) == "yes"
        count = len(said)
        await asyncio.sleep(0.1)
    assert set(said) == {"cannot ask the judge for 0 s: nobody listens. It is tried again."}
    assert 2 <= count == len(said)


async def test_a_server_that_was_given_up_is_not_said_any_more():
    said: list[str] = []
    with Outages(said.append, first=0.05, then=0.05).noted():
        with pytest.raises(ModelError):
            await ask(failures=40)
        said.clear()
        await asyncio.sleep(0.12)
    assert said == []


async def test_a_server_that_fails_some_of_many_calls_is_not_away():
    said: list[str] = []
    with Outages(said.append, first=0.15, then=0.15).noted():

        async def others() -> None:
            for _ in range(20):
                await ask(failures=0)
                await asyncio.sleep(0.01)

        await asyncio.gather(ask(failures=35), others())
    assert said == []


async def test_two_calls_of_one_server_are_one_sentence():
    said: list[str] = []
    with Outages(said.append, first=0.05, then=10).noted():
        await asyncio.gather(ask(failures=20), ask(failures=20))
    assert len(said) == 1


async def test_without_a_command_nothing_is_said(capsys):
    assert await ask(failures=3) == "yes"
    assert capsys.readouterr().err == ""
