"""What the environment asks of tools: names, and an answer to a call. Everything else is a backend's business."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from rubricem_env.domain.tool import ToolCall, ToolResult
from rubricem_env.tools.catalogue import FETCH_PAGE, GOOGLE_SEARCH, SNIPPET_SEARCH
from rubricem_env.tools.repair import repair_call, unknown_tool
from rubricem_env.tools.spec import ToolSpec

__all__ = ["FETCH_PAGE", "GOOGLE_SEARCH", "SNIPPET_SEARCH", "LocalToolbox", "Tool", "Toolbox", "unknown_tool"]


class Tool(Protocol):
    """One tool. A failure of the world is a result with an error status, never an exception."""

    @property
    def spec(self) -> ToolSpec: ...

    async def call(self, call: ToolCall) -> ToolResult:
        """Answer a call whose name and parameters fit the spec."""
        ...


@runtime_checkable
class Toolbox(Protocol):
    """The tools of an episode, called by name. Safe to share: many episodes call it at once on one event loop."""

    @property
    def names(self) -> tuple[str, ...]: ...

    async def call(self, call: ToolCall) -> ToolResult: ...


class LocalToolbox:
    """Tools in this process. Near misses of names and parameters are repaired, and recorded in the result."""

    def __init__(self, *tools: Tool) -> None:
        self._tools: Mapping[str, Tool] = {tool.spec.name: tool for tool in tools}
        self._specs = tuple(tool.spec for tool in self._tools.values())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return self._specs

    async def call(self, call: ToolCall) -> ToolResult:
        """Call the tool; what no repair can save is an error result that says how to write the call."""
        repaired = repair_call(call, self._specs)
        if isinstance(repaired, ToolResult):
            return repaired
        result = await self._tools[repaired.name].call(repaired)
        return result if repaired is call or repaired == call else result.model_copy(update={"executed": repaired})
