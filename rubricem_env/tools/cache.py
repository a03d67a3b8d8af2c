"""A tool that remembers: successes only, and equal calls at the same time cost one."""

import hashlib
import json
import logging

from rubricem_env.domain.errors import ToolError, boundary
from rubricem_env.domain.tool import ToolCall, ToolResult
from rubricem_env.tools.base import Tool
from rubricem_env.tools.cache_store import CacheStore
from rubricem_env.tools.single_flight import SingleFlight
from rubricem_env.tools.spec import ToolSpec

_FORMAT = "1"
_log = logging.getLogger(__name__)


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
        found = await self._remembered(key)
        if found is not None:
            return found
        return await self._flights.run(key, lambda: self._look_up(key, call))

    async def _look_up(self, key: str, call: ToolCall) -> ToolResult:
        # Once more: an equal call may have ended since this one looked.
        found = await self._remembered(key)
        if found is not None:
            return found
        result = await self._tool.call(call)
        if not result.status.is_error:
            await self._remember(key, result)
        return result

    async def _remembered(self, key: str) -> ToolResult | None:
        """None as well for an entry that is damaged or of another release: it is asked for again and replaced."""
        try:
            with boundary(ToolError, "read the tool cache"):
                kept = await self._store.get(key)
                return ToolResult.model_validate_json(kept) if kept is not None else None
        except ToolError as failure:
            _log.warning("%s", failure)
            return None

    async def _remember(self, key: str, result: ToolResult) -> None:
        """A full disk or a locked file costs the entry, not the call."""
        try:
            with boundary(ToolError, "write the tool cache"):
                await self._store.put(key, result.model_dump_json(exclude={"executed"}))
        except ToolError as failure:
            _log.warning("%s", failure)


def cache_key(call: ToolCall, scope: str) -> str:
    """Equal for calls that ask the same; case counts, because it does in addresses."""
    asked = (_FORMAT, scope, call.name, " ".join(call.query.split()), call.parameters)
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()
