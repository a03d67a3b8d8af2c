"""Runs coroutines together: the first failure cancels the rest and is raised as itself."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

Result = TypeVar("Result")


async def run_together(coroutines: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """The results, in the order given. No task outlives this call, however it ends."""
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup as failures:
        # A caller catches one typed error; the others are consequences of the same outage.
        raise failures.exceptions[0] from None
    return [task.result() for task in running]
