"""A tool that remembers: successes only, and equal calls at the same time cost one."""

import hashlib
import json

from pydantic import ValidationError

from rubricem_env.domain.tool import ToolCall, ToolResult
from rubricem_env.tools.base import Tool
from rubricem_env.tools.cache_store import CacheStore
from rubricem_env.tools.single_flight import SingleFlight
from rubricem_env.tools.spec import ToolSpec

_FORMAT = "1"


class CachedTool:
    """The cache in front of one tool. Errors are never kept: the next call tries again."""

    def __init__(self, tool: Tool, store: CacheStore, *, scope: str) -> None:
        """`scope` names what the results depend on beside the call, such as the engine and its model; no secrets."""
        self._tool = tool
        self._store = store
        self._scope = scope
        self._flights: SingleFlight[ToolResult] = SingleFlight()

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    async def call(self, call: ToolCall) -> ToolResult:
        """The remembered result, or the tool's."""
        key = cache_key(call, self._scope)
        return await self._flights.run(key, lambda: self._look_up(key, call))

    async def _look_up(self, key: str, call: ToolCall) -> ToolResult:
        kept = await self._store.get(key)
        found = _read(kept) if kept is not None else None
        if found is not None:
            return found
        result = await self._tool.call(call)
        if not result.status.is_error:
            await self._store.put(key, result.model_dump_json(exclude={"executed"}))
        return result


def cache_key(call: ToolCall, scope: str) -> str:
    """Equal for calls that ask the same; case counts, because it does in addresses."""
    asked = (_FORMAT, scope, call.name, " ".join(call.query.split()), call.parameters)
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


def _read(kept: str) -> ToolResult | None:
    """None for an entry of another release or a damaged one: it is asked for again and replaced."""
    try:
        return ToolResult.model_validate_json(kept)
    except ValidationError:
        return None
