"""Tools and toolboxes: what the environment calls, tools of this process, and redaction around any toolbox."""

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol, runtime_checkable

from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.trajectory import Snippet, ToolCall, ToolResult
from rubricem_env.llm.base import Redactor
from rubricem_env.tools.spec import (
    FETCH_PAGE,
    GOOGLE_SEARCH,
    SNIPPET_SEARCH,
    ToolSpec,
    repair_call,
    unknown_tool,
)

__all__ = [
    "FETCH_PAGE",
    "GOOGLE_SEARCH",
    "SNIPPET_SEARCH",
    "FunctionTool",
    "LocalToolbox",
    "RedactingToolbox",
    "Tool",
    "Toolbox",
    "unknown_tool",
]


class Tool(Protocol):
    """One tool. A failure of the outside world is a result with an error status, never an exception."""

    @property
    def spec(self) -> ToolSpec: ...

    async def call(self, call: ToolCall, /) -> ToolResult:
        """Answer a call whose name and parameters fit the spec."""
        ...


class FunctionTool(NamedTuple):
    """A tool made of its spec and an async function."""

    spec: ToolSpec
    call: Callable[[ToolCall], Coroutine[Any, Any, ToolResult]]


@runtime_checkable
class Toolbox(Protocol):
    """The tools of an episode, called by name. Safe to share: many episodes call it at once on one event loop."""

    @property
    def names(self) -> tuple[str, ...]: ...

    async def call(self, call: ToolCall) -> ToolResult: ...


class LocalToolbox:
    """Tools by name. Misspelt names and parameters are repaired, and the repaired call is recorded in the result."""

    def __init__(self, *tools: Tool) -> None:
        """Raises ConfigError if two tools have the same name."""
        self.tools = {tool.spec.name: tool for tool in tools}
        self.specs = tuple(tool.spec for tool in tools)
        names = [spec.name for spec in self.specs]
        twins = sorted({name for name in names if names.count(name) > 1})
        if twins:
            raise ConfigError(f"two tools are named {twins[0]!r}; leave one out, or choose tools with `only`.")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.tools)

    async def call(self, call: ToolCall) -> ToolResult:
        """Call the tool. A call that cannot be repaired gets an error result that says how to write it."""
        repaired = repair_call(call, self.specs)
        if isinstance(repaired, ToolResult):
            return repaired
        result = await self.tools[repaired.name].call(repaired)
        return result if repaired is call or repaired == call else result.model_copy(update={"executed": repaired})


class RedactingToolbox:
    """Removes known secrets from calls and results."""

    def __init__(self, toolbox: Toolbox, redactor: Redactor) -> None:
        self._toolbox = toolbox
        self._redactor = redactor

    @property
    def names(self) -> tuple[str, ...]:
        return self._toolbox.names

    async def call(self, call: ToolCall) -> ToolResult:
        return redact_result(await self._toolbox.call(redact_call(call, self._redactor)), self._redactor)


def redact_call(call: ToolCall, redactor: Redactor) -> ToolCall:
    """The call without known secrets."""
    redact = redactor
    parameters = tuple((redact(name), redact(value)) for name, value in call.parameters)
    cleaned = {"name": redact(call.name), "query": redact(call.query), "parameters": parameters}
    return call.model_copy(update={**cleaned, "written_name": redact(call.written_name)})


def redact_result(result: ToolResult, redactor: Redactor) -> ToolResult:
    """The result without known secrets."""
    redact = redactor
    snippets = tuple(
        Snippet(text=redact(each.text), title=redact(each.title), url=redact(each.url)) for each in result.snippets
    )
    executed = redact_call(result.executed, redactor) if result.executed else None
    cleaned = {"summary": redact(result.summary), "message": redact(result.message)}
    return result.model_copy(update={**cleaned, "snippets": snippets, "executed": executed})
