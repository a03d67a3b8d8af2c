"""The tools of a run: how many calls run at once, and the text of a page."""

import asyncio
from dataclasses import dataclass

from rubricem_env.domain.trajectory import ToolCall, ToolResult
from rubricem_env.tools.base import Toolbox
from rubricem_env.tools.spec import FETCH_PAGE


@dataclass(frozen=True)
class LimitedToolbox:
    """Limits how many calls of a toolbox run at once, whatever the number of episodes."""

    toolbox: Toolbox
    slots: asyncio.Semaphore

    @property
    def names(self) -> tuple[str, ...]:
        return self.toolbox.names

    async def call(self, call: ToolCall) -> ToolResult:
        async with self.slots:
            return await self.toolbox.call(call)


async def read_page(toolbox: Toolbox, url: str) -> str:
    """The text of a web page, read with `fetch_page`; empty where the tool failed or found nothing."""
    result = await toolbox.call(ToolCall(name=FETCH_PAGE, query=url))
    if result.status.is_error:
        return ""
    return result.summary or "\n".join(snippet.text for snippet in result.snippets)
