"""The tools of a run: how many calls run at once, what they may not find, and the text of a page."""

import asyncio
from dataclasses import dataclass

from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.trajectory import ToolCall, ToolResult
from rubricem_env.tools.base import Toolbox
from rubricem_env.tools.spec import FETCH_PAGE
from rubricem_env.world.documents import ALMANAC_URL


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


@dataclass(frozen=True)
class RealWorldToolbox:
    """Refuses what comes from the shipped almanac: a tool server or a record may hold it without its user's knowledge.

    The run then ends in one sentence.
    """

    toolbox: Toolbox

    @property
    def names(self) -> tuple[str, ...]:
        return self.toolbox.names

    async def call(self, call: ToolCall) -> ToolResult:
        result = await self.toolbox.call(call)
        if any(snippet.url.startswith(ALMANAC_URL) for snippet in result.snippets):
            raise ConfigError(
                f"{call.name} found a page of the shipped almanac, an invented world, for a question about the real "
                "one: the tools serve the almanac. Name others with --tools, or search it all the same with --tools "
                "offline."
            )
        return result


async def read_page(toolbox: Toolbox, url: str) -> str:
    """The text of a web page, read with `fetch_page`; empty where the tool failed or found nothing."""
    result = await toolbox.call(ToolCall(name=FETCH_PAGE, query=url))
    if result.status.is_error:
        return ""
    return result.summary or "\n".join(snippet.text for snippet in result.snippets)
