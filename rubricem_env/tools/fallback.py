"""Several tools as one: the next is asked where one fails."""

from collections.abc import Sequence

from rubricem_env.domain.trajectory import ToolCall, ToolResult, ToolStatus
from rubricem_env.tools.base import FunctionTool, Tool
from rubricem_env.tools.failures import MAX_MESSAGE

_PASSED_ON = frozenset({ToolStatus.ERROR, ToolStatus.TIMEOUT, ToolStatus.RATE_LIMITED})


def in_order(tools: Sequence[Tool]) -> Tool:
    """One tool of several engines: the next is asked where one is out of money, down or too busy."""

    async def call(request: ToolCall) -> ToolResult:
        failures = []
        for tool in tools:
            result = await tool.call(request)
            if result.status not in _PASSED_ON:
                return result
            failures.append(result.message)
        return result.model_copy(update={"message": " ".join(failures)[:MAX_MESSAGE]})

    return FunctionTool(tools[0].spec, call) if len(tools) > 1 else tools[0]
