"""Keeps an MCP session open in a task of its own.

mcp cancels the task that opened a session when its HTTP server dies, so callers run their requests in other tasks.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from rubricem_env.domain.errors import ToolError, boundary
from rubricem_env.tools.failures import ToolFailure
from rubricem_env.tools.mcp_session import Opener

_CLOSE_SECONDS = 5.0
_REASON_SECONDS = 2.0
Result = TypeVar("Result")


class Connection:
    """One session in a task of its own. It is started once and closed once."""

    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self._loop = asyncio.get_running_loop()
        self._session: asyncio.Future[Any] = self._loop.create_future()
        self._lost = self._loop.create_future()
        self._closing = asyncio.Event()
        self._owner: asyncio.Task[None] | None = None
        self.cause: BaseException | None = None
        """Why it could not be opened, or ended; None where nothing is known."""

    @property
    def is_usable(self) -> bool:
        """It is open or being opened, on the running loop."""
        return self._loop is asyncio.get_running_loop() and not self._lost.done() and not self._closing.is_set()

    @property
    def is_over(self) -> bool:
        return self._lost.done()

    def start(self) -> None:
        self._owner = self._loop.create_task(self._own())
        self._owner.add_done_callback(self._end)

    async def session(self) -> Any:
        """The open session; many may wait for it.

        Raises:
            ToolFailure: it could not be opened.
        """
        await asyncio.wait({self._session, self._lost}, return_when=asyncio.FIRST_COMPLETED)
        if self._session.done():
            return self._session.result()
        raise ToolFailure("the connection could not be opened", is_retryable=True)

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Await a request in a task of its own. It fails when the connection dies, and is cancelled with its caller."""
        task = self._loop.create_task(work)
        try:
            await asyncio.wait({task, self._lost}, return_when=asyncio.FIRST_COMPLETED)
            if task.done() and not task.cancelled():
                return task.result()
            raise ConnectionError("the connection died")
        finally:
            task.cancel()

    def drop(self) -> None:
        """Take no more requests, and end the task without waiting for it, by force while it is still connecting."""
        self._closing.set()
        if self._owner is not None and not self._session.done():
            self._owner.cancel()

    async def reason(self) -> BaseException | None:
        """Why a dropped connection was lost, as far as it is known in a moment."""
        await asyncio.wait({self._lost}, timeout=_REASON_SECONDS)
        return self.cause

    async def aclose(self) -> None:
        """End the task, by force if it does not end by itself."""
        self._closing.set()
        owner = self._owner
        if owner is None or self._loop is not asyncio.get_running_loop():
            return
        await asyncio.wait({owner}, timeout=_CLOSE_SECONDS)
        if not owner.done():
            owner.cancel()
            await asyncio.wait({owner}, timeout=_CLOSE_SECONDS)

    async def _own(self) -> None:
        with boundary(ToolError, "keep the connection"):
            async with self._opener() as session:
                self._session.set_result(session)
                await self._closing.wait()

    def _end(self, owner: "asyncio.Task[None]") -> None:
        """Report the end of the task to its callers; its exception counts as retrieved."""
        cause = None if owner.cancelled() else owner.exception()
        # The first single exception inside groups and wrappers is the one that a person can act on.
        while isinstance(cause, BaseExceptionGroup) or (isinstance(cause, ToolError) and cause.__cause__ is not None):
            cause = cause.exceptions[0] if isinstance(cause, BaseExceptionGroup) else cause.__cause__
        self.cause = cause
        self._lost.set_result(None)
