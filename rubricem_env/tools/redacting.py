"""Tools and toolboxes whose calls and results hold no known secret, whoever put it there."""

from rubricem_env.domain.tool import Snippet, ToolCall, ToolResult
from rubricem_env.llm.secrets import Redactor
from rubricem_env.tools.base import Tool, Toolbox
from rubricem_env.tools.spec import ToolSpec


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
