"""Opens and uses a session of mcp 1.x and 2.x.

Only these functions know both library versions: mcp 2 has one `Client`, snake_case fields and httpx2; mcp 1 has
`ClientSession` over hand-opened streams, camelCase fields and httpx.
"""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

import mcp
from mcp.client.streamable_http import streamable_http_client
from pydantic import SecretStr

from rubricem_env.domain.errors import ToolError
from rubricem_env.domain.trajectory import ToolResult
from rubricem_env.tools.failures import ToolFailure
from rubricem_env.tools.mcp_result import read_outcome
from rubricem_env.tools.mcp_transport import HTTP, IS_MCP_1, limit_reply, open_program
from rubricem_env.tools.spec import SHIPPED_SPECS, ToolSpec, spec_from_schema

MAX_PAGES = 20
MAX_TOOLS = 500
"""The most pages and tools that are read of a server's list, which might be endless."""
_OURS = {spec.name: spec for spec in SHIPPED_SPECS}
_ProtocolError: Any = mcp.McpError if IS_MCP_1 else mcp.MCPError  # type: ignore[attr-defined, unused-ignore]
_CONNECTION_CLOSED = -32000
_UNAUTHORIZED = (401, 403)
"""mcp 1 reports a wrong token as the bare HTTP error. mcp 2 wraps it in an error of the protocol."""


def is_refusal(failure: BaseException | None) -> bool:
    """The server answered with an error of the protocol or refused the token; the connection is alive."""
    if isinstance(failure, HTTP.HTTPStatusError):
        status: int = failure.response.status_code
        return status in _UNAUTHORIZED
    if not isinstance(failure, _ProtocolError):
        return False
    code: int = failure.error.code
    return code != _CONNECTION_CLOSED


async def list_tools(session: Any, only: Collection[str] = ()) -> list[ToolSpec]:
    """What the server offers, or what of it `only` names.

    Our own spec for our tools, which has their aliases, else the published schema.

    Raises:
        ToolFailure: the list does not end, or a tool cannot be shown to a policy.
    """
    offered: list[ToolSpec] = []
    cursor: str | None = None
    num_tools = 0
    for _ in range(MAX_PAGES):
        # Older 1.x releases have no such parameter, so it is passed only if there is a cursor.
        page = await (session.list_tools(cursor=cursor) if cursor else session.list_tools())
        num_tools += len(page.tools)
        for tool in page.tools:
            if only and tool.name not in only:
                continue
            schema = tool.inputSchema if IS_MCP_1 else tool.input_schema
            ours = _OURS.get(tool.name)
            if ours is not None and schema.get("properties") == ours.input_schema()["properties"]:
                offered.append(ours)
            else:
                offered.append(_read_spec(tool.name, tool.description or "", schema))
        cursor = page.nextCursor if IS_MCP_1 else page.next_cursor
        if num_tools > MAX_TOOLS:
            break
        if not cursor:
            return offered
    raise ToolFailure(
        f"the server lists more than {MAX_TOOLS} tools, or more than {MAX_PAGES} pages of them; a list must end."
    )


def _read_spec(name: str, description: str, schema: Mapping[str, Any]) -> ToolSpec:
    try:
        return spec_from_schema(name, description, schema)
    except ToolError as refusal:
        raise ToolFailure(str(refusal)) from refusal


async def call_tool(
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
    program = open_program(command, arguments, environment or {})
    async with open_in_process(program, timeout=timeout) as session:
        yield session


@asynccontextmanager
async def open_http(url: str, token: SecretStr | None = None, *, timeout: float = 90.0) -> AsyncIterator[Any]:
    """A session with a server at an address; `timeout` is in seconds, for single reads."""
    # A compressed reply could be small and unfold without end.
    headers = {"Accept-Encoding": "identity"}
    if token:
        headers["Authorization"] = f"Bearer {token.get_secret_value()}"
    async with (
        HTTP.AsyncClient(
            headers=headers,
            timeout=timeout,
            limits=HTTP.Limits(max_connections=None),
            event_hooks={"response": [_raise_server_error, limit_reply]},
        ) as client,
        open_in_process(streamable_http_client(url, http_client=client), timeout=timeout) as session,
    ):
        yield session


async def _raise_server_error(response: Any) -> None:
    """A stopping server, or the gateway of a dead one, answers 5xx: the call is lost, not refused.

    mcp 2 turns every failing status into the same error of the protocol, so they must be told apart here.
    """
    if response.status_code >= 500:
        raise HTTP.RemoteProtocolError(f"the server answered {response.status_code}", request=response.request)


Opener = Callable[[], AbstractAsyncContextManager[Any]]
