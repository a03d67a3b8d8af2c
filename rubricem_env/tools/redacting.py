"""A toolbox whose results hold no known secret, whoever put it there."""

from rubricem_env.domain.tool import Snippet, ToolCall, ToolResult
from rubricem_env.llm.secrets import Redactor
from rubricem_env.tools.base import Toolbox


class RedactingToolbox:
    """Takes known keys out of calls before they leave, and out of results: servers echo what they are sent."""

    def __init__(self, toolbox: Toolbox, redactor: Redactor) -> None:
        self._toolbox = toolbox
        self._redactor = redactor

    @property
    def names(self) -> tuple[str, ...]:
        return self._toolbox.names

    async def call(self, call: ToolCall) -> ToolResult:
        return self._clean_result(await self._toolbox.call(self._clean_call(call)))

    def _clean_call(self, call: ToolCall) -> ToolCall:
        redact = self._redactor.redact
        parameters = tuple((redact(name), redact(value)) for name, value in call.parameters)
        return call.model_copy(update={"query": redact(call.query), "parameters": parameters})

    def _clean_result(self, result: ToolResult) -> ToolResult:
        redact = self._redactor.redact
        snippets = tuple(
            Snippet(text=redact(each.text), title=redact(each.title), url=redact(each.url)) for each in result.snippets
        )
        executed = self._clean_call(result.executed) if result.executed else None
        cleaned = {"summary": redact(result.summary), "message": redact(result.message)}
        return result.model_copy(update={**cleaned, "snippets": snippets, "executed": executed})
