"""One open MCP session, the same for mcp 2.x and 1.x: this is the one module that knows the difference.

mcp 2 has one `Client`, snake_case fields and httpx2; mcp 1 has `ClientSession` over hand-opened streams, camelCase
fields and httpx. Libraries that pin mcp below 2 can so use our client; our server needs 2.3.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from importlib import import_module
from importlib.metadata import version
from typing import Any, NamedTuple, Protocol

import mcp
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import SecretStr

from rubricem_env.tools.mcp_result import CallOutcome

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


class Session(Protocol):
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
async def open_session(target: Target, *, timeout: float) -> AsyncIterator[Session]:
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
