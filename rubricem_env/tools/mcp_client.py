"""The tools of one MCP server as a toolbox, for our server and others, with mcp 1.x and 2.x.

Only the functions that open and use a session know both library versions: mcp 2 has one `Client`, snake_case fields and
httpx2; mcp 1 has `ClientSession` over hand-opened streams, camelCase fields and httpx. `Connection` keeps a
session open in a task of its own, because mcp cancels the task that opened a session when its HTTP server dies: callers
run their requests in other tasks. `McpLink` shares one connection to each address among all calls, and opens it again
when it dies.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import Any, Self, TypeVar

import mcp
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import SecretStr, ValidationError

from rubricem_env.domain.errors import BoundaryError, ToolError, boundary
from rubricem_env.domain.trajectory import Snippet, ToolCall, ToolResult, ToolStatus
from rubricem_env.llm.balancer import Balancer
from rubricem_env.llm.limiter import Limiter, Rates
from rubricem_env.llm.retry import RetryPolicy, call_with_retry
from rubricem_env.llm.timing import Timing
from rubricem_env.tools.base import FunctionTool, LocalToolbox
from rubricem_env.tools.guard import ToolFailure, result_of_failure
from rubricem_env.tools.spec import SHIPPED_SPECS, ToolSpec, read_arguments, spec_from_schema

MAX_SNIPPETS = 20
MAX_PAGES = 20
"""Of a server's list of tools, which might be endless."""
_MAX_TEXT = 200_000
"""Characters of one piece of foreign text that are kept; far more than a policy is shown."""
_OUR_KEYS = frozenset({"status", "summary", "snippets", "message"})
_OURS = {spec.name: spec for spec in SHIPPED_SPECS}

IS_MCP_1 = version("mcp").startswith("1.")
_http: Any = import_module("httpx" if IS_MCP_1 else "httpx2")
_ProtocolError: Any = mcp.McpError if IS_MCP_1 else mcp.MCPError  # type: ignore[attr-defined, unused-ignore]
_CONNECTION_CLOSED = -32000
_UNAUTHORIZED = (401, 403)
"""mcp 1 reports a wrong token as the bare HTTP error. mcp 2 wraps it in an error of the protocol."""
_CLOSE_SECONDS = 5.0
Result = TypeVar("Result")


def read_outcome(texts: Sequence[str], structured: Any = None, *, is_error: bool = False, server: str) -> ToolResult:
    """A `ToolResult` from our own servers; from others snippets, one for each text."""
    ours = _read_ours(structured)
    if ours is not None:
        return ours
    shown = [text[:_MAX_TEXT] for text in texts if text.strip()]
    if is_error:
        said = " ".join(" ".join(shown).split())[:300] or "no reason given"
        return ToolResult(status=ToolStatus.ERROR, message=f"{server} says: {said}")
    if not shown and structured is not None:
        shown = [json.dumps(structured, ensure_ascii=False)[:_MAX_TEXT]]
    return ToolResult.found(Snippet(text=text, title=server) for text in shown[:MAX_SNIPPETS])


def _read_ours(structured: Any) -> ToolResult | None:
    # All of our keys: many foreign tools have a status too, and give the rest as text.
    if not isinstance(structured, Mapping) or not structured.keys() >= _OUR_KEYS:
        return None
    try:
        # Not strict: JSON has lists for tuples and strings for enums.
        result = ToolResult.model_validate(structured, strict=False)
    except ValidationError:
        return None
    # The server saw the repaired call, so its word on the repair does not count.
    return result.model_copy(update={"executed": None})


def is_refusal(failure: BaseException | None) -> bool:
    """The server answered with an error of the protocol or refused the token; the connection is alive."""
    if isinstance(failure, _http.HTTPStatusError):
        status: int = failure.response.status_code
        return status in _UNAUTHORIZED
    if not isinstance(failure, _ProtocolError):
        return False
    code: int = failure.error.code
    return code != _CONNECTION_CLOSED


async def _list_tools(session: Any) -> list[ToolSpec]:
    """What the server offers: our own spec for our tools, which has their aliases, else the published schema."""
    offered: list[ToolSpec] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        # Older 1.x releases have no such parameter, so it is passed only if there is a cursor.
        page = await (session.list_tools(cursor=cursor) if cursor else session.list_tools())
        for tool in page.tools:
            schema = tool.inputSchema if IS_MCP_1 else tool.input_schema
            ours = _OURS.get(tool.name)
            if ours is not None and schema.get("properties") == ours.input_schema()["properties"]:
                offered.append(ours)
            else:
                offered.append(spec_from_schema(tool.name, tool.description or "", schema))
        cursor = page.nextCursor if IS_MCP_1 else page.next_cursor
        if not cursor:
            break
    return offered


async def _call_tool(
    session: Any, name: str, arguments: Mapping[str, Any], *, timeout: float, server: str = "the server"
) -> ToolResult:
    """One call; `timeout` is in seconds, `server` is the name in messages and titles."""
    limit: Any = timedelta(seconds=timeout) if IS_MCP_1 else timeout
    reply = await session.call_tool(name, dict(arguments), read_timeout_seconds=limit)
    texts = [part.text for part in reply.content if part.type == "text"]
    structured = reply.structuredContent if IS_MCP_1 else reply.structured_content
    is_error = bool(reply.isError if IS_MCP_1 else reply.is_error)
    return read_outcome(texts, structured, is_error=is_error, server=server)


@asynccontextmanager
async def open_in_process(server: Any, *, timeout: float = 90.0) -> AsyncIterator[Any]:
    """A session with a server object of mcp 2 in this process, or over a transport of either version."""
    if not IS_MCP_1:
        async with mcp.Client(server, read_timeout_seconds=timeout) as client:
            yield client
        return
    async with server as streams, mcp.ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        yield session


@asynccontextmanager
async def open_stdio(
    command: str, arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None, *, timeout: float = 90.0
) -> AsyncIterator[Any]:
    """A session with a child process. It gets `environment` and no other variables of ours."""
    parameters = StdioServerParameters(command=command, args=list(arguments), env=dict(environment or {}))
    async with open_in_process(stdio_client(parameters), timeout=timeout) as session:
        yield session


@asynccontextmanager
async def open_http(url: str, token: SecretStr | None = None, *, timeout: float = 90.0) -> AsyncIterator[Any]:
    """A session with a server at an address; `timeout` is in seconds, for single reads."""
    headers = {"Authorization": f"Bearer {token.get_secret_value()}"} if token else {}
    async with (
        _http.AsyncClient(
            headers=headers,
            timeout=timeout,
            limits=_http.Limits(max_connections=None),
            event_hooks={"response": [_raise_server_error]},
        ) as client,
        open_in_process(streamable_http_client(url, http_client=client), timeout=timeout) as session,
    ):
        yield session


async def _raise_server_error(response: Any) -> None:
    """A stopping server, or the gateway of a dead one, answers 5xx: the call is lost, not refused.

    mcp 2 turns every failing status into the same error of the protocol, so they must be told apart here.
    """
    if response.status_code >= 500:
        raise _http.RemoteProtocolError(f"the server answered {response.status_code}", request=response.request)


Opener = Callable[[], AbstractAsyncContextManager[Any]]


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
        """Why it could not be opened; None if it could, or if nothing is known."""

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
        if not self._session.done():
            self.cause = cause
        self._lost.set_result(None)


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

    async def list_tools(self) -> list[ToolSpec]:
        """What the server offers.

        Raises:
            ToolError: it cannot be reached.
        """
        return await self._call(_list_tools, repeats=True)

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """One call, repeated after a lost connection if that is allowed.

        Raises:
            ToolError: it failed for good; `ToolFailure` if the reason is known.
        """
        # The library's own limit comes later: after it we could not tell which error is a time-out.
        limit = self._timeout * 2
        return await self._call(
            lambda session: _call_tool(session, name, arguments, timeout=limit, server=self.name),
            repeats=self._repeats_lost_calls,
        )

    async def aclose(self) -> None:
        """Close the connections, and wait for those that were dropped; this takes seconds at most."""
        closing, self._connections, self._leaving = [*self._leaving, *self._connections.values()], {}, []
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
            cause, is_refused = connection.cause, is_refusal(connection.cause)
            reason = " ".join(f"{type(cause).__name__}: {cause}".split())[:200] if cause else str(failure)
            advice = "; check its address and its token" if is_refused else ""
            # The program of a child may not exist.
            is_hopeless = is_refused or isinstance(cause, FileNotFoundError | PermissionError)
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
            ToolError: the server cannot be reached.
        """
        offered = await link.list_tools()
        return cls(link, [spec for spec in offered if not only or spec.name in only])

    async def aclose(self) -> None:
        await self._link.aclose()


async def _call_over(link: McpLink, spec: ToolSpec, call: ToolCall) -> ToolResult:
    try:
        return await link.call_tool(call.name, read_arguments(call, spec))
    except ToolError as failure:
        return result_of_failure(failure)
