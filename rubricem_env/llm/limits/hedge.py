"""Sends a slow request a second time and takes the first reply."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from rubricem_env.llm.limits.deadline import DEADLINE
from rubricem_env.llm.limits.retry import Result


async def call_with_hedge(
    call: Callable[[asyncio.Event], Coroutine[Any, Any, Result]],
    *,
    after: float,
    sleep: Callable[[float], Awaitable[None]],
) -> Result:
    """Await `call` and, `after` seconds from when it has begun, a second one beside it; the first result is taken.

    A call sets its event when its turn has come, so that a queue starts no second one. A failure is raised where no
    other call has begun that may still succeed. The call that is not needed is cancelled before this returns.
    """
    has_begun = (asyncio.Event(), asyncio.Event())

    async def call_again() -> Result:
        await has_begun[0].wait()
        await sleep(after)
        DEADLINE.set(None)  # its wait for a turn must not extend the time of the first
        return await call(has_begun[1])

    calls = [asyncio.create_task(call(has_begun[0])), asyncio.create_task(call_again())]
    try:
        ended, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        if all(task.exception() for task in ended) and (calls[1] in ended or has_begun[1].is_set()):
            ended, _ = await asyncio.wait(calls)
        return next((task for task in calls if task in ended and not task.exception()), calls[0]).result()
    finally:
        for task in calls:
            task.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
