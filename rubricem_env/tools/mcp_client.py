"""The tools of one MCP server as a toolbox, for our server and others.

`McpLink` shares one connection to each address among all calls, and opens it again when it dies.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import partial
from typing import Any, Self

from rubricem_env.domain.errors import BoundaryError, ToolError, boundary
from rubricem_env.domain.trajectory import ToolCall, ToolResult, ToolStatus
from rubricem_env.llm.limits.balancer import Balancer
from rubricem_env.llm.limits.limiter import Limiter, Rates
from rubricem_env.llm.limits.retry import RetryPolicy, call_with_retry
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.tools.arguments import read_arguments
from rubricem_env.tools.base import FunctionTool, LocalToolbox
from rubricem_env.tools.failures import ToolFailure, result_of_failure
from rubricem_env.tools.mcp_connection import Connection, Result
from rubricem_env.tools.mcp_session import Opener, call_tool, is_refusal, list_tools
from rubricem_env.tools.spec import ToolSpec


class McpLink:
    """One server, or several that answer alike, over one connection each. Safe to share by all tasks of a loop.

    A `Balancer` chooses the server of a call. A new loop gets new connections.
    """

    def __init__(
        self,
        name: str,
        opener: Opener,
        *others: Opener,
        timing: Timing,
        concurrency: int = 256,
        connect_timeout: float = 30.0,
        timeout: float = 90.0,
        total: float = 180.0,
        attempts: int = 6,
        repeats_lost_calls: bool = True,
    ) -> None:
        """Each opener connects to one server. `timeout` is for one try of a call, in seconds.

        `total` is for all tries of a call, with their reconnections and waits.

        `concurrency` is the number of calls at once. After a lost connection a call gets up to `attempts` tries, the
        first included. Use `repeats_lost_calls=False` for tools that change something: a call whose connection died may
        have been carried out.
        """
        self.name = name
        self._openers = (opener, *others)
        self._balancer = Balancer(len(self._openers), timing.clock)
        self._timing = timing
        self._connect_timeout = connect_timeout
        self._timeout = timeout
        self._retry = RetryPolicy(attempts=attempts, initial_delay=0.2, max_delay=5.0, deadline=total)
        self._repeats_lost_calls = repeats_lost_calls
        self._limiter = Limiter(Rates(concurrency=concurrency), timing)
        self._connections: dict[int, Connection] = {}
        self._leaving: list[Connection] = []

    async def list_tools(self, only: Collection[str] = ()) -> list[ToolSpec]:
        """What the server offers, or what of it `only` names.

        Raises:
            ToolError: it cannot be reached, its list does not end, or a tool cannot be shown to a policy.
        """
        return await self._call(lambda session: list_tools(session, only), repeats=True)

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """One call, repeated after a lost connection if that is allowed.

        Raises:
            ToolError: it failed for good; `ToolFailure` if the reason is known.
        """
        # The library's own limit comes later: after it we could not tell which error is a time-out.
        limit = self._timeout * 2
        return await self._call(
            lambda session: call_tool(session, name, arguments, timeout=limit, server=self.name),
            repeats=self._repeats_lost_calls,
        )

    async def aclose(self) -> None:
        """Close the connections, and wait for those that were dropped; this takes seconds at most."""
        closing = [*self._leaving, *self._connections.values()]
        self._connections = {}
        self._leaving = []
        await asyncio.gather(*(connection.aclose() for connection in closing))

    async def _call(self, work: Callable[[Any], Coroutine[Any, Any, Result]], *, repeats: bool) -> Result:
        async def attempt() -> Result:
            async with self._limiter.slot(0):
                with self._balancer.request(range(len(self._openers))) as server:
                    connection = self._open(server)
                    session = await self._connect(connection)
                    return await self._run(connection, work(session), repeats)

        return await call_with_retry(
            attempt, doing=f"call the MCP server {self.name}", error=ToolError, policy=self._retry, timing=self._timing
        )

    def _open(self, server: int) -> Connection:
        """The live connection to a server, or a new one. Nothing is awaited here, so there is only ever one."""
        connection = self._connections.get(server)
        if connection is None or not connection.is_usable:
            self._leaving = [each for each in (*self._leaving, connection) if each is not None and not each.is_over]
            connection = self._connections[server] = Connection(self._openers[server])
            connection.start()
        return connection

    async def _connect(self, connection: Connection) -> Any:
        try:
            async with asyncio.timeout(self._connect_timeout):
                return await connection.session()
        except TimeoutError as late:
            connection.drop()
            raise ToolFailure(f"{self.name} does not answer.", status=ToolStatus.TIMEOUT, is_retryable=True) from late
        except BoundaryError as failure:
            cause = connection.cause
            is_refused = is_refusal(connection.cause)
            reason = " ".join(f"{type(cause).__name__}: {cause}".split())[:200] if cause else str(failure)
            advice = "; check its address and its token" if is_refused else ""
            # The program of a child may not exist.
            is_hopeless = is_refused or isinstance(cause, FileNotFoundError | PermissionError | ToolFailure)
            message = f"{self.name} cannot be reached: {reason}{advice}."
            raise ToolFailure(message, is_retryable=not is_hopeless) from failure

    async def _run(self, connection: Connection, work: Coroutine[Any, Any, Result], repeats: bool) -> Result:
        try:
            async with asyncio.timeout(self._timeout):
                with boundary(ToolError, f"call the MCP server {self.name}"):
                    return await connection.run(work)
        except TimeoutError as late:
            message = f"{self.name} did not answer within {self._timeout:g} s; try again or continue."
            # Where there are others, one that hangs is left out, and another is asked.
            again = repeats and len(self._openers) > 1
            raise ToolFailure(message, status=ToolStatus.TIMEOUT, is_retryable=again) from late
        except ToolFailure:
            raise
        except ToolError as failure:
            # The server rejected the request; the connection is alive.
            if is_refusal(failure.__cause__) and not connection.is_over:
                raise
            connection.drop()
            reason = await connection.reason()
            if isinstance(reason, ToolFailure):
                raise ToolFailure(f"{self.name} does not work: {reason}") from failure
            raise ToolFailure(f"the connection to {self.name} was lost.", is_retryable=repeats) from failure


class McpToolbox(LocalToolbox):
    """The tools of one MCP server. Every failure is a typed result."""

    def __init__(self, link: McpLink, specs: Collection[ToolSpec]) -> None:
        super().__init__(*(FunctionTool(spec, partial(_call_over, link, spec)) for spec in specs))
        self._link = link

    @classmethod
    async def connect(cls, link: McpLink, only: Collection[str] = ()) -> Self:
        """With the tools that the server lists, or with those of them that `only` names.

        Raises:
            ToolError: as `McpLink.list_tools`.
        """
        return cls(link, await link.list_tools(only))

    async def aclose(self) -> None:
        await self._link.aclose()


async def _call_over(link: McpLink, spec: ToolSpec, call: ToolCall) -> ToolResult:
    try:
        return await link.call_tool(call.name, read_arguments(call, spec))
    except ToolError as failure:
        return result_of_failure(failure)
