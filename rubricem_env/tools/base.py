"""What the environment asks of tools: names, and an answer to a call. Everything else is a backend's business.

Several toolboxes as one.

Tools and toolboxes whose calls and results hold no known secret, whoever put it there.
"""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.trajectory import Snippet, ToolCall, ToolResult
from rubricem_env.llm.base import Redactor
from rubricem_env.tools.spec import (
    FETCH_PAGE,
    GOOGLE_SEARCH,
    SNIPPET_SEARCH,
    ToolSpec,
    find_tool,
    repair_call,
    unknown_tool,
)

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


class DescribedToolbox(Toolbox, Protocol):
    """A toolbox that knows what its tools take."""

    @property
    def specs(self) -> tuple[ToolSpec, ...]: ...


class JoinedToolbox:
    """Each call goes to the toolbox that has the tool, near misses included."""

    def __init__(self, *toolboxes: DescribedToolbox) -> None:
        """Raises ConfigError where two of them have a tool of the same name."""
        self._toolboxes = toolboxes
        self._specs = tuple(spec for toolbox in toolboxes for spec in toolbox.specs)
        _refuse_twins(self._specs)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self._specs)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return self._specs

    async def call(self, call: ToolCall) -> ToolResult:
        spec = find_tool(call.name, self._specs)
        if spec is None:
            return unknown_tool(call.name, self.names)
        toolbox = next(each for each in self._toolboxes if spec in each.specs)
        return await toolbox.call(call)


def _refuse_twins(specs: tuple[ToolSpec, ...]) -> None:
    names = [spec.name for spec in specs]
    twins = sorted({name for name in names if names.count(name) > 1})
    if twins:
        raise ConfigError(
            f"two toolboxes offer {twins[0]!r}; a policy could not say which it means. "
            "Choose among the tools of one of them with `only`."
        )


class RedactingTool:
    """Stands between a tool and its cache: servers echo what they are sent."""

    def __init__(self, tool: Tool, redactor: Redactor) -> None:
        self._tool = tool
        self._redactor = redactor

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    async def call(self, call: ToolCall) -> ToolResult:
        return redact_result(await self._tool.call(redact_call(call, self._redactor)), self._redactor)


class RedactingToolbox:
    """Stands outermost: no key leaves with a call, none is recorded, and none comes back."""

    def __init__(self, toolbox: Toolbox, redactor: Redactor) -> None:
        self._toolbox = toolbox
        self._redactor = redactor

    @property
    def names(self) -> tuple[str, ...]:
        return self._toolbox.names

    async def call(self, call: ToolCall) -> ToolResult:
        return redact_result(await self._toolbox.call(redact_call(call, self._redactor)), self._redactor)


def redact_call(call: ToolCall, redactor: Redactor) -> ToolCall:
    """The call without known secrets; the very same where there are none."""
    redact = redactor.redact
    parameters = tuple((redact(name), redact(value)) for name, value in call.parameters)
    cleaned = {"name": redact(call.name), "query": redact(call.query), "parameters": parameters}
    return call.model_copy(update={**cleaned, "written_name": redact(call.written_name)})


def redact_result(result: ToolResult, redactor: Redactor) -> ToolResult:
    """The result without known secrets."""
    redact = redactor.redact
    snippets = tuple(
        Snippet(text=redact(each.text), title=redact(each.title), url=redact(each.url)) for each in result.snippets
    )
    executed = redact_call(result.executed, redactor) if result.executed else None
    cleaned = {"summary": redact(result.summary), "message": redact(result.message)}
    return result.model_copy(update={**cleaned, "snippets": snippets, "executed": executed})
