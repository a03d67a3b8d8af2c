"""A cache in front of a tool.

Only successes are kept. Equal calls at the same time share one call of the tool.
"""

import asyncio
import hashlib
import json
import logging
from typing import TypeAlias

from rubricem_env.domain.errors import ToolError, boundary
from rubricem_env.domain.trajectory import ToolCall, ToolResult
from rubricem_env.tools.base import Tool
from rubricem_env.tools.cache_stores import CacheStore

_FORMAT = "1"
_log = logging.getLogger(__name__)
_Waiting: TypeAlias = set["asyncio.Future[ToolResult]"]
"""One future for each caller. A task that is shielded from its callers wakes them a turn of the event loop later."""


class CachedTool:
    """A cache in front of one tool. Errors are never kept: the next call tries again."""

    def __init__(self, tool: Tool, store: CacheStore, *, scope: str) -> None:
        """`scope` names what results depend on besides the call, such as the engine and its model; no secrets."""
        self.spec = tool.spec
        self._tool = tool
        self._store = store
        self._scope = scope
        self._running: dict[tuple[int, str], tuple[asyncio.Task[None], _Waiting]] = {}
        """The running calls of the tool, by event loop and key."""
        self._ended = 0
        """How many tasks have ended."""

    async def call(self, call: ToolCall) -> ToolResult:
        """The cached result, or the tool's.

        Equal calls wait for one task. A cancelled caller leaves the others waiting; the task is cancelled when nobody
        waits any more.
        """
        key = cache_key(call, self._scope)
        ended = self._ended
        cached = await self._read(key)
        if cached is not None:
            return cached
        slot = (id(asyncio.get_running_loop()), key)
        if slot not in self._running:
            waiting: _Waiting = set()
            self._running[slot] = asyncio.create_task(self._answer(slot, call, waiting, ended=ended)), waiting
        task, waiting = self._running[slot]
        answer: asyncio.Future[ToolResult] = asyncio.get_running_loop().create_future()
        waiting.add(answer)
        try:
            return await answer
        finally:
            waiting.remove(answer)
            if not waiting and not task.done():
                self._leave(slot, waiting)
                task.cancel()

    async def _answer(self, slot: tuple[int, str], call: ToolCall, waiting: _Waiting, *, ended: int) -> None:
        """Look up the call for all that wait."""
        try:
            # Once more where a call has ended since this one looked: it may have been an equal one.
            result = await self._read(slot[1]) if self._ended != ended else None
            if result is None:
                result = await self._tool.call(call)
                if not result.status.is_error:
                    await self._write(slot[1], result)
            for answer in waiting:
                if not answer.done():
                    answer.set_result(result)
        except BaseException as failure:
            for answer in waiting:
                if not answer.done():
                    answer.set_exception(failure)
            if not waiting:
                raise
        finally:
            self._ended += 1
            self._leave(slot, waiting)

    def _leave(self, slot: tuple[int, str], waiting: _Waiting) -> None:
        # A newer task may have the slot of one that was abandoned.
        if slot in self._running and self._running[slot][1] is waiting:
            del self._running[slot]

    async def _read(self, key: str) -> ToolResult | None:
        """None also for an entry that is damaged or of another release: the tool is called and the entry replaced."""
        try:
            with boundary(ToolError, "read the tool cache"):
                text = await self._store.get(key)
                return ToolResult.model_validate_json(text) if text is not None else None
        except ToolError as failure:
            _log.warning("%s", failure)
            return None

    async def _write(self, key: str, result: ToolResult) -> None:
        """A full disk or a locked file loses the entry, not the call."""
        try:
            with boundary(ToolError, "write the tool cache"):
                await self._store.put(key, result.model_dump_json(exclude={"executed"}))
        except ToolError as failure:
            _log.warning("%s", failure)


def cache_key(call: ToolCall, scope: str) -> str:
    """Equal for calls that ask the same; case counts, because it does in addresses."""
    parts = (_FORMAT, scope, call.name, " ".join(call.query.split()), call.parameters)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
