"""What the environment asks of tools: names, and an answer to a call. Everything else is a backend's business."""

from collections.abc import Mapping
from typing import Protocol

from rubricem_env.domain.tool import ToolCall, ToolResult, ToolStatus

GOOGLE_SEARCH = "google_search"
SNIPPET_SEARCH = "snippet_search"


class Tool(Protocol):
    """One tool. A failure of the world is a result with an error status, never an exception."""

    @property
    def name(self) -> str: ...

    async def call(self, call: ToolCall) -> ToolResult: ...


class Toolbox(Protocol):
    """The tools of an episode, called by name. Safe to share: many episodes call it at once on one event loop."""

    @property
    def names(self) -> tuple[str, ...]: ...

    async def call(self, call: ToolCall) -> ToolResult: ...


class LocalToolbox:
    """Tools in this process, by name."""

    def __init__(self, *tools: Tool) -> None:
        self._tools: Mapping[str, Tool] = {tool.name: tool for tool in tools}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    async def call(self, call: ToolCall) -> ToolResult:
        """Call the tool; an unknown name is an error result that lists the known ones."""
        tool = self._tools.get(call.name)
        return unknown_tool(call.name, self.names) if tool is None else await tool.call(call)


def unknown_tool(name: str, names: tuple[str, ...]) -> ToolResult:
    """The result of calling a tool that is not there."""
    asked = f"there is no tool {name!r}" if name else "the call names no tool"
    message = f"{asked}; the tools are {', '.join(names)}. Call one of these."
    return ToolResult(status=ToolStatus.ERROR, message=message)
