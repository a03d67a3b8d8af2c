"""Tools and toolboxes: their protocols, those made of functions, and the redaction of calls."""

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from rubricem_env.domain.errors import ConfigError, ToolError
from rubricem_env.domain.trajectory import ToolCall, ToolResult
from rubricem_env.llm.keys import Redactor
from rubricem_env.tools.repair import repair_call
from rubricem_env.tools.spec import ToolSpec, check_tool_name


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

    def __init__(self, *tools: Tool, redactor: Redactor = str) -> None:
        """`redactor` removes known secrets from calls and results.

        Raises ConfigError if two tools have the same name, or a name has other characters than a tool's.
        """
        self.tools = {tool.spec.name: tool for tool in tools}
        self.specs = tuple(tool.spec for tool in tools)
        self._redactor = redactor
        names = [spec.name for spec in self.specs]
        for name in names:
            try:
                check_tool_name(name)
            except ToolError as refusal:
                raise ConfigError(str(refusal)) from refusal
        twins = sorted({name for name in names if names.count(name) > 1})
        if twins:
            raise ConfigError(f"two tools are named {twins[0]!r}; leave one out, or choose tools with `only`.")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.tools)

    async def call(self, call: ToolCall) -> ToolResult:
        """Call the tool. A call that cannot be repaired gets an error result that says how to write it."""
        call = redacted(call, self._redactor)
        repaired = repair_call(call, self.specs)
        if isinstance(repaired, ToolResult):
            return redacted(repaired, self._redactor)
        result = await self.tools[repaired.name].call(repaired)
        if repaired is not call:
            result = result.model_copy(update={"executed": repaired})
        return redacted(result, self._redactor)


Shown = TypeVar("Shown", ToolCall, ToolResult)


def redacted(value: Shown, redactor: Redactor) -> Shown:
    """The call or result without known secrets in any of its texts."""
    if redactor is str:
        return value

    def cleaned(part: Any) -> Any:
        if isinstance(part, dict):
            return {name: cleaned(inner) for name, inner in part.items()}
        if isinstance(part, tuple):
            return tuple(map(cleaned, part))
        return redactor(part) if type(part) is str else part

    return type(value).model_validate(cleaned(value.model_dump()))
