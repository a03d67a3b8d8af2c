"""Search under a limit of its own: so many calls at once, whatever the number of episodes."""

import asyncio

from rubricem_env.domain.tool import ToolCall, ToolResult
from rubricem_env.tools.base import Toolbox


class LimitedToolbox:
    """A toolbox in front of another one."""

    def __init__(self, toolbox: Toolbox, slots: asyncio.Semaphore) -> None:
        self._toolbox = toolbox
        self._slots = slots

    @property
    def names(self) -> tuple[str, ...]:
        return self._toolbox.names

    async def call(self, call: ToolCall) -> ToolResult:
        async with self._slots:
            return await self._toolbox.call(call)
