"""The tools of one MCP server as a toolbox: ours or anybody's, under their own names and schemas."""

from collections.abc import Collection
from typing import Self

from rubricem_env.domain.errors import ToolError
from rubricem_env.domain.tool import ToolCall, ToolResult
from rubricem_env.tools.arguments import read_arguments
from rubricem_env.tools.catalogue import FETCH_PAGE_SPEC, GOOGLE_SEARCH_SPEC, SNIPPET_SEARCH_SPEC
from rubricem_env.tools.failure import result_of_failure
from rubricem_env.tools.mcp_link import McpLink
from rubricem_env.tools.mcp_result import read_outcome
from rubricem_env.tools.mcp_session import OfferedTool
from rubricem_env.tools.repair import repair_call
from rubricem_env.tools.spec import ToolSpec, spec_from_schema

_OURS = {spec.name: spec for spec in (GOOGLE_SEARCH_SPEC, SNIPPET_SEARCH_SPEC, FETCH_PAGE_SPEC)}


class McpToolbox:
    """Calls over one link. A failure of any kind is a typed result."""

    def __init__(self, link: McpLink, specs: Collection[ToolSpec]) -> None:
        self._link = link
        self._specs = tuple(specs)

    @classmethod
    async def connect(cls, link: McpLink, only: Collection[str] = ()) -> Self:
        """With the tools that the server lists, or those among them that are named in `only`.

        Raises:
            ToolError: the server cannot be reached.
        """
        offered = await link.list_tools()
        return cls(link, [_spec_of(tool) for tool in offered if not only or tool.name in only])

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self._specs)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return self._specs

    async def call(self, call: ToolCall) -> ToolResult:
        """Repair the call, make it, and turn what comes back into a result."""
        repaired = repair_call(call, self._specs)
        if isinstance(repaired, ToolResult):
            return repaired
        result = await self._ask(repaired)
        # What the server says of the call is not believed: it saw the repaired one.
        return result.model_copy(update={"executed": None if repaired == call else repaired})

    async def aclose(self) -> None:
        await self._link.aclose()

    async def _ask(self, call: ToolCall) -> ToolResult:
        spec = next(spec for spec in self._specs if spec.name == call.name)
        try:
            outcome = await self._link.call_tool(call.name, read_arguments(call, spec))
        except ToolError as failure:
            return result_of_failure(failure)
        return read_outcome(outcome, server=self._link.name)


def _spec_of(tool: OfferedTool) -> ToolSpec:
    """Our own spec for a tool of ours, which knows the near misses; else one from the published schema."""
    ours = _OURS.get(tool.name)
    published = tool.input_schema.get("properties")
    if ours is not None and published == ours.input_schema()["properties"]:
        return ours
    return spec_from_schema(tool.name, tool.description, tool.input_schema)
