"""Tool results as MCP carries them: ours as structured content, anybody's as text.

One open MCP session, the same for mcp 2.x and 1.x: this is the one module that knows the difference.

mcp 2 has one `Client`, snake_case fields and httpx2; mcp 1 has `ClientSession` over hand-opened streams, camelCase
fields and httpx. Libraries that pin mcp below 2 can so use our client; our server needs 2.3.

One life of an MCP connection, in a task of its own.

When an HTTP server dies, mcp cancels the task that opened the session. So no caller may be that task: callers run
their requests beside it and learn of its death as of any other outcome.

A connection to one MCP server that is kept open, shared by all calls, and opened again when it dies.

The tools of one MCP server as a toolbox: ours or anybody's, under their own names and schemas.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import timedelta
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any, NamedTuple, Protocol, Self, TypeVar

import mcp
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import Field, SecretStr, ValidationError

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import BoundaryError, ToolError, boundary
from rubricem_env.domain.trajectory import Snippet, ToolCall, ToolResult, ToolStatus
from rubricem_env.llm.limits import Limiter, Rates, RetryPolicy, Timing, call_with_retry
from rubricem_env.tools.guard import ToolFailure, advise_on_tool_failure, result_of_failure
from rubricem_env.tools.spec import (
    FETCH_PAGE_SPEC,
    GOOGLE_SEARCH_SPEC,
    SNIPPET_SEARCH_SPEC,
    ToolSpec,
    read_arguments,
    repair_call,
    spec_from_schema,
)

MAX_SNIPPETS = 20
_OUR_KEYS = frozenset({"status", "summary", "snippets", "message"})
_MAX_TEXT = 200_000
"""Characters of one piece of foreign text that are kept; far beyond what a policy is shown."""


class CallOutcome(NamedTuple):
    """What a server answered, whatever the version of its protocol."""

    texts: tuple[str, ...] = ()
    structured: Any = None
    is_error: bool = False


def result_schema() -> dict[str, Any]:
    """The JSON schema of our structured content."""
    return ToolResult.model_json_schema(mode="serialization")


def plain_text(result: ToolResult) -> str:
    """A result for clients that read text alone."""
    if result.status.is_error:
        return f"{result.status.value}: {result.message}"
    blocks = [result.summary, *(_block(snippet) for snippet in result.snippets)]
    return "\n\n".join(block for block in blocks if block) or "No results."


def read_outcome(outcome: CallOutcome, *, server: str) -> ToolResult:
    """A `ToolResult` from our own servers; from others snippets, one for each piece of text."""
    ours = _read_ours(outcome.structured)
    if ours is not None:
        return ours
    texts = [text[:_MAX_TEXT] for text in outcome.texts if text.strip()]
    if outcome.is_error:
        said = " ".join(" ".join(texts).split())[:300] or "no reason given"
        return ToolResult(status=ToolStatus.ERROR, message=f"{server} says: {said}")
    if not texts and outcome.structured is not None:
        texts = [json.dumps(outcome.structured, ensure_ascii=False)[:_MAX_TEXT]]
    snippets = tuple(_limited(Snippet(text=text, title=server) for text in texts))
    return ToolResult(status=ToolStatus.OK if snippets else ToolStatus.EMPTY, snippets=snippets)


def _read_ours(structured: Any) -> ToolResult | None:
    # All of it or nothing: many a foreign tool has a status too, and says the rest in its text.
    if not isinstance(structured, Mapping) or not structured.keys() >= _OUR_KEYS:
        return None
    try:
        # Not strict: JSON has lists for tuples and strings for enums.
        return ToolResult.model_validate(structured, strict=False)
    except ValidationError:
        return None


def _limited(snippets: Iterable[Snippet]) -> Iterable[Snippet]:
    return (snippet for _, snippet in zip(range(MAX_SNIPPETS), snippets, strict=False))


def _block(snippet: Snippet) -> str:
    head = " | ".join(part for part in (snippet.title, snippet.url) if part)
    return f"{head}\n{snippet.text}" if head else snippet.text


IS_MCP_1 = version("mcp").startswith("1.")
_http: Any = import_module("httpx" if IS_MCP_1 else "httpx2")
_ProtocolError: Any = mcp.McpError if IS_MCP_1 else mcp.MCPError  # type: ignore[attr-defined, unused-ignore]
_CONNECTION_CLOSED = -32000
_UNAUTHORIZED = (401, 403)
"""How mcp 1 reports a wrong token: the bare HTTP error. mcp 2 wraps it in one of the protocol."""
_SERVER_ERROR = 500

MAX_PAGES = 20
"""Of a server's list of tools: one that never ends must not hold us up."""


class StdioServer(NamedTuple):
    """A server to be started as a child process. It gets `environment` and nothing else of ours."""

    command: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}


class HttpServer(NamedTuple):
    """A server at an address."""

    url: str
    token: SecretStr | None = None


class InProcessServer(NamedTuple):
    """A server object of mcp 2 in this very process: the whole protocol without a wire."""

    server: Any


Target = StdioServer | HttpServer | InProcessServer


class OfferedTool(NamedTuple):
    """A tool as its server describes it."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


class McpSession(Protocol):
    """An open connection. Fails with whatever its library raises; dies with the task that opened it."""

    async def list_tools(self) -> list[OfferedTool]: ...

    async def call_tool(self, name: str, arguments: Mapping[str, Any], *, timeout: float) -> CallOutcome: ...


def is_refusal(failure: BaseException | None) -> bool:
    """The server answered, with an error of the protocol or a refusal of the token: the connection is well."""
    if isinstance(failure, _http.HTTPStatusError):
        status: int = failure.response.status_code
        return status in _UNAUTHORIZED
    if not isinstance(failure, _ProtocolError):
        return False
    code: int = failure.error.code
    return code != _CONNECTION_CLOSED


class _Session:
    """A session of either library."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def list_tools(self) -> list[OfferedTool]:
        offered: list[OfferedTool] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            # Older 1.x releases know no cursor by that name, so it is only passed where there is one.
            page = await (self._client.list_tools(cursor=cursor) if cursor else self._client.list_tools())
            offered += [_read_tool(tool) for tool in page.tools]
            cursor = page.nextCursor if IS_MCP_1 else page.next_cursor
            if not cursor:
                break
        return offered

    async def call_tool(self, name: str, arguments: Mapping[str, Any], *, timeout: float) -> CallOutcome:
        limit: Any = timedelta(seconds=timeout) if IS_MCP_1 else timeout
        result = await self._client.call_tool(name, dict(arguments), read_timeout_seconds=limit)
        texts = tuple(part.text for part in result.content if part.type == "text")
        if IS_MCP_1:
            return CallOutcome(texts, result.structuredContent, bool(result.isError))
        return CallOutcome(texts, result.structured_content, bool(result.is_error))


def _read_tool(tool: Any) -> OfferedTool:
    schema = tool.inputSchema if IS_MCP_1 else tool.input_schema
    return OfferedTool(tool.name, tool.description or "", schema)


@asynccontextmanager
async def open_session(target: Target, *, timeout: float) -> AsyncIterator[McpSession]:
    """Connect and shake hands; `timeout` is in seconds, for single reads where a call names none."""
    async with AsyncExitStack() as stack:
        transport = await _transport(target, stack, timeout)
        if IS_MCP_1:
            streams = await stack.enter_async_context(transport)
            client: Any = await stack.enter_async_context(mcp.ClientSession(streams[0], streams[1]))
            await client.initialize()
        else:
            client = await stack.enter_async_context(mcp.Client(transport, read_timeout_seconds=timeout))
        yield _Session(client)


async def _transport(target: Target, stack: AsyncExitStack, timeout: float) -> Any:
    if isinstance(target, InProcessServer):
        return target.server
    if isinstance(target, StdioServer):
        environment = dict(target.environment)
        return stdio_client(StdioServerParameters(command=target.command, args=list(target.arguments), env=environment))
    headers = {"Authorization": f"Bearer {target.token.get_secret_value()}"} if target.token else {}
    client = _http.AsyncClient(
        headers=headers,
        timeout=timeout,
        limits=_http.Limits(max_connections=None),
        event_hooks={"response": [_lose_what_the_server_drops]},
    )
    return streamable_http_client(target.url, http_client=await stack.enter_async_context(client))


async def _lose_what_the_server_drops(response: Any) -> None:
    """A server that stops, or a gateway before one that is gone, answers 5xx: the call is lost, not refused.

    mcp 2 turns any failing status into one and the same error of the protocol, so this is the last place to tell.
    """
    if response.status_code >= _SERVER_ERROR:
        raise _http.RemoteProtocolError(f"the server answered {response.status_code}", request=response.request)


Result = TypeVar("Result")
_CLOSE_SECONDS = 5.0


class Connection:
    """Started once, closed once; never comes back to life."""

    def __init__(self, opener: Callable[[], AbstractAsyncContextManager[McpSession]]) -> None:
        self._opener = opener
        self._loop = asyncio.get_running_loop()
        self._session: asyncio.Future[McpSession] = self._loop.create_future()
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

    async def session(self) -> McpSession:
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


Opener = Callable[[], AbstractAsyncContextManager[McpSession]]


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

    async def _insist(self, work: Callable[[McpSession], Coroutine[Any, Any, Result]], *, repeats: bool) -> Result:
        attempts, total = self._settings.attempts, self._settings.total
        return await call_with_retry(
            lambda: self._try_once(work, repeats),
            doing=f"call the MCP server {self.name}",
            error=ToolError,
            advise=advise_on_tool_failure,
            policy=RetryPolicy(attempts=attempts, initial_delay=0.2, max_delay=5.0, deadline=total),
            timing=self._timing,
        )

    async def _try_once(self, work: Callable[[McpSession], Coroutine[Any, Any, Result]], repeats: bool) -> Result:
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

    async def _connect(self, connection: Connection) -> McpSession:
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


_OURS = {spec.name: spec for spec in (GOOGLE_SEARCH_SPEC, SNIPPET_SEARCH_SPEC, FETCH_PAGE_SPEC)}


class McpToolbox:
    """Calls over one link. A failure of any kind is a typed result."""

    def __init__(self, link: McpLink, specs: Collection[ToolSpec]) -> None:
        self._link = link
        self._specs = tuple(specs)

    @classmethod
    async def connect(cls, link: McpLink, only: Collection[str] = ()) -> Self:
        """With the tools that the server lists, or those among them that are named in `only`.

        Raises:
            ToolError: the server cannot be reached.
        """
        offered = await link.list_tools()
        return cls(link, [_spec_of(tool) for tool in offered if not only or tool.name in only])

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self._specs)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return self._specs

    async def call(self, call: ToolCall) -> ToolResult:
        """Repair the call, make it, and turn what comes back into a result."""
        repaired = repair_call(call, self._specs)
        if isinstance(repaired, ToolResult):
            return repaired
        result = await self._ask(repaired)
        # What the server says of the call is not believed: it saw the repaired one.
        return result.model_copy(update={"executed": None if repaired == call else repaired})

    async def aclose(self) -> None:
        await self._link.aclose()

    async def _ask(self, call: ToolCall) -> ToolResult:
        spec = next(spec for spec in self._specs if spec.name == call.name)
        try:
            outcome = await self._link.call_tool(call.name, read_arguments(call, spec))
        except ToolError as failure:
            return result_of_failure(failure)
        return read_outcome(outcome, server=self._link.name)


def _spec_of(tool: OfferedTool) -> ToolSpec:
    """Our own spec for a tool of ours, which knows the near misses; else one from the published schema."""
    ours = _OURS.get(tool.name)
    published = tool.input_schema.get("properties")
    if ours is not None and published == ours.input_schema()["properties"]:
        return ours
    return spec_from_schema(tool.name, tool.description, tool.input_schema)
