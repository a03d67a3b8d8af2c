"""A connection to one MCP server that is kept open, shared by all calls, and opened again when it dies."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, TypeVar

from pydantic import Field

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import BoundaryError, ToolError, boundary
from rubricem_env.domain.tool import ToolStatus
from rubricem_env.llm.limiter import Limiter, Rates
from rubricem_env.llm.retry import RetryPolicy, Timing, call_with_retry
from rubricem_env.tools.failure import ToolFailure, advise_on_tool_failure
from rubricem_env.tools.mcp_connection import Connection
from rubricem_env.tools.mcp_result import CallOutcome
from rubricem_env.tools.mcp_session import OfferedTool, Session

Result = TypeVar("Result")
Opener = Callable[[], AbstractAsyncContextManager[Session]]


class LinkSettings(Frozen):
    """How a server is called."""

    concurrency: Annotated[int, Field(ge=1)] = 256
    """Calls at once over the one connection."""
    connect_timeout: Annotated[float, Field(gt=0)] = 30.0
    timeout: Annotated[float, Field(gt=0)] = 90.0
    """Seconds for one try of a call; the server's own retries happen within it."""
    total: Annotated[float, Field(gt=0)] = 180.0
    """Seconds for a call in all, reconnections and waiting for a place included."""
    attempts: Annotated[int, Field(ge=1)] = 6
    """Tries after a lost connection, the first included."""
    repeats_lost_calls: bool = True
    """False for tools that change something: a call whose connection died may have been carried out."""


class McpLink:
    """Safe to share by all tasks of one event loop; a new loop gets a new connection."""

    def __init__(self, name: str, opener: Opener, *, settings: LinkSettings, timing: Timing) -> None:
        self.name = name
        self._opener = opener
        self._settings = settings
        self._timing = timing
        self._limiter = Limiter(Rates(concurrency=settings.concurrency), timing)
        self._connection: Connection | None = None
        self._leaving: list[Connection] = []

    async def list_tools(self) -> list[OfferedTool]:
        """What the server offers.

        Raises:
            ToolError: it cannot be reached.
        """
        return await self._insist(lambda session: session.list_tools(), repeats=True)

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> CallOutcome:
        """One call, made again after a lost connection where that is allowed.

        Raises:
            ToolError: it failed for good; `ToolFailure` where the reason is known.
        """
        limit = self._settings.timeout
        return await self._insist(
            # The library's own limit comes second: it would leave us to guess which error is a time-out.
            lambda session: session.call_tool(name, arguments, timeout=limit * 2),
            repeats=self._settings.repeats_lost_calls,
        )

    async def aclose(self) -> None:
        """Close the connection within seconds, whatever the server does, and see out those that were dropped."""
        closing, self._connection, self._leaving = [*self._leaving, self._connection], None, []
        await asyncio.gather(*(connection.aclose() for connection in closing if connection is not None))

    async def _insist(self, work: Callable[[Session], Coroutine[Any, Any, Result]], *, repeats: bool) -> Result:
        attempts, total = self._settings.attempts, self._settings.total
        return await call_with_retry(
            lambda: self._try_once(work, repeats),
            doing=f"call the MCP server {self.name}",
            error=ToolError,
            advise=advise_on_tool_failure,
            policy=RetryPolicy(attempts=attempts, initial_delay=0.2, max_delay=5.0, deadline=total),
            timing=self._timing,
        )

    async def _try_once(self, work: Callable[[Session], Coroutine[Any, Any, Result]], repeats: bool) -> Result:
        async with self._limiter.slot(0):
            connection = self._open()
            session = await self._connect(connection)
            return await self._run(connection, work(session), repeats)

    def _open(self) -> Connection:
        """The living connection, or a new one that is being made; nothing is awaited, so there is only ever one."""
        if self._connection is None or not self._connection.is_usable:
            known = [*self._leaving, *([self._connection] if self._connection else [])]
            self._leaving = [each for each in known if not each.is_over]
            self._connection = Connection(self._opener)
            self._connection.start()
        return self._connection

    async def _connect(self, connection: Connection) -> Session:
        try:
            async with asyncio.timeout(self._settings.connect_timeout):
                return await connection.session()
        except TimeoutError as late:
            connection.drop()
            raise ToolFailure(f"{self.name} does not answer.", status=ToolStatus.TIMEOUT, passes=True) from late
        except BoundaryError as failure:
            advice = "; check its address and its token" if connection.is_refused else ""
            reason = f"{connection.reason or failure}{advice}"
            raise ToolFailure(
                f"{self.name} cannot be reached: {reason}.", passes=not connection.is_hopeless
            ) from failure

    async def _run(self, connection: Connection, work: Coroutine[Any, Any, Result], repeats: bool) -> Result:
        try:
            async with asyncio.timeout(self._settings.timeout):
                with boundary(ToolError, f"call the MCP server {self.name}"):
                    return await connection.run(work)
        except TimeoutError as late:
            message = f"{self.name} did not answer within {self._settings.timeout:g} s; try again or go on."
            raise ToolFailure(message, status=ToolStatus.TIMEOUT) from late
        except ToolFailure:
            raise
        except ToolError as failure:
            if connection.explains(failure.__cause__):
                raise
            connection.drop()
            raise ToolFailure(f"the connection to {self.name} was lost.", passes=repeats) from failure
