"""One life of an MCP connection, in a task of its own.

When an HTTP server dies, mcp cancels the task that opened the session. So no caller may be that task: callers run
their requests beside it and learn of its death as of any other outcome.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from rubricem_env.domain.errors import ToolError, boundary
from rubricem_env.tools.failure import ToolFailure
from rubricem_env.tools.mcp_session import Session, is_refusal

Result = TypeVar("Result")
_CLOSE_SECONDS = 5.0


class Connection:
    """Started once, closed once; never comes back to life."""

    def __init__(self, opener: Callable[[], AbstractAsyncContextManager[Session]]) -> None:
        self._opener = opener
        self._loop = asyncio.get_running_loop()
        self._session: asyncio.Future[Session] = self._loop.create_future()
        self._lost = self._loop.create_future()
        self._closing = asyncio.Event()
        self._owner: asyncio.Task[None] | None = None
        self.reason: str = ""
        """Why it could not be opened; "" where it could, or nothing is known."""
        self.is_refused = False
        """The server answered the attempt to connect with a refusal, such as of the token."""
        self.is_hopeless = False
        """Trying again changes nothing: it was refused, or there is no such program."""

    @property
    def is_usable(self) -> bool:
        """It lives, or is being opened, on the loop that runs now."""
        return self._loop is asyncio.get_running_loop() and not self._lost.done() and not self._closing.is_set()

    def start(self) -> None:
        self._owner = self._loop.create_task(self._own())
        self._owner.add_done_callback(self._bury)

    async def session(self) -> Session:
        """The open session; many may wait for it.

        Raises:
            ToolFailure: it could not be opened.
        """
        await asyncio.wait({self._session, self._lost}, return_when=asyncio.FIRST_COMPLETED)
        if self._session.done():
            return self._session.result()
        raise ToolFailure("the connection could not be opened", passes=True)

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Await a request beside the owner: it fails when the connection dies and is cancelled with its caller."""
        task = self._loop.create_task(work)
        try:
            await asyncio.wait({task, self._lost}, return_when=asyncio.FIRST_COMPLETED)
            if task.done() and not task.cancelled():
                return task.result()
            raise ConnectionError("the connection died")
        finally:
            task.cancel()

    def explains(self, cause: BaseException | None) -> bool:
        """The failure is the server's word on the request, not the connection's end."""
        return is_refusal(cause) and not self._lost.done()

    def drop(self) -> None:
        """Take no more requests, and end the owner without waiting for it, by force where it is still connecting."""
        self._closing.set()
        if self._owner is not None and not self._session.done():
            self._owner.cancel()

    @property
    def is_over(self) -> bool:
        return self._lost.done()

    async def aclose(self) -> None:
        """End the owner, by force if it does not end by itself."""
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

    def _bury(self, owner: "asyncio.Task[None]") -> None:
        """Whatever ended the owner, its callers are told, and its exception counts as seen."""
        failure = None if owner.cancelled() else owner.exception()
        leaf = _innermost(failure)
        if leaf is not None and not self._session.done():
            self.reason = " ".join(f"{type(leaf).__name__}: {leaf}".split())[:200]
            self.is_refused = is_refusal(leaf)
            self.is_hopeless = self.is_refused or isinstance(leaf, FileNotFoundError | PermissionError)
        self._lost.set_result(None)


def _innermost(failure: BaseException | None) -> BaseException | None:
    """The first single exception inside groups and wrappers: what a person can act on."""
    while failure is not None:
        if isinstance(failure, BaseExceptionGroup):
            failure = failure.exceptions[0]
        elif isinstance(failure, ToolError) and failure.__cause__ is not None:
            failure = failure.__cause__
        else:
            break
    return failure
