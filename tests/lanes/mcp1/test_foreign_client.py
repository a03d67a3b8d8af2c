"""A client that is not ours, mcp 1.x's own ClientSession, lists and calls our tools over both transports."""

from contextlib import asynccontextmanager

import httpx
import pytest
from mcp import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from rubricem_env.domain.trajectory import ToolResult
from rubricem_env.tools.mcp_session import IS_MCP_1
from rubricem_env.world.offline import shipped_toolbox
from tests.lanes.mcp1.servers import ARGUMENTS, RUBRICEM
from tests.rubricem_env.tools.mcp_cases import CALL, TOKEN

pytestmark = pytest.mark.skipif(not IS_MCP_1, reason="this is mcp 2; run make mcp-lane")


@asynccontextmanager
async def over_stdio(_url):
    parameters = StdioServerParameters(command=RUBRICEM, args=list(ARGUMENTS))
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        yield session


@asynccontextmanager
async def over_http(url):
    headers = {"Authorization": f"Bearer {TOKEN.get_secret_value()}"}
    async with (
        httpx.AsyncClient(headers=headers, timeout=20) as client,
        streamable_http_client(url, http_client=client) as streams,
        ClientSession(streams[0], streams[1]) as session,
    ):
        await session.initialize()
        yield session


@pytest.mark.parametrize("transport", [over_stdio, over_http])
async def test_it_lists_typed_tools_and_reads_text_and_structure(transport, our_url):
    expected = await shipped_toolbox().call(CALL)
    async with transport(our_url) as session:
        offered = {tool.name: tool for tool in (await session.list_tools()).tools}
        called = await session.call_tool("google_search", {"query": CALL.query})
    assert list(offered) == ["google_search", "snippet_search"]
    limit = offered["snippet_search"].inputSchema["properties"]["limit"]
    assert (limit["type"], limit["minimum"], limit["maximum"]) == ("integer", 1, 10)
    assert not called.isError
    assert expected.summary in called.content[0].text
    assert ToolResult.model_validate(called.structuredContent, strict=False) == expected


@pytest.mark.parametrize("transport", [over_stdio, over_http])
async def test_its_mistake_is_a_result_and_the_session_continues(transport, our_url):
    async with transport(our_url) as session:
        for name, arguments in (("bing", {}), ("google_search", {}), ("snippet_search", {"query": "x", "limit": 99})):
            refused = await session.call_tool(name, arguments)
            assert refused.isError
            assert refused.content[0].text.startswith("error: ")
        assert not (await session.call_tool("snippet_search", {"query": "Tall Fox", "limit": 1})).isError
