"""Our client where a library pins mcp below 2: it calls our server of today, and servers by other people."""

import asyncio
import json
import sys
from contextlib import asynccontextmanager

import pytest
from pydantic import SecretStr

from rubricem_agent.build.tools import open_tools
from rubricem_agent.config.tools import read_tools_config
from rubricem_env.domain.tool import ToolCall, ToolStatus
from rubricem_env.env.offline import shipped_toolbox
from rubricem_env.llm.retry import Timing
from rubricem_env.testing.episodes import run_scripted_episode
from rubricem_env.tools.catalogue import GOOGLE_SEARCH_SPEC, SNIPPET_SEARCH_SPEC
from rubricem_env.tools.mcp_link import LinkSettings, McpLink
from rubricem_env.tools.mcp_session import IS_MCP_1, HttpServer, StdioServer, open_session
from rubricem_env.tools.mcp_toolbox import McpToolbox
from tests.lanes.mcp1.servers import OURS, TIME_SERVER, TOKEN, serve_over_http

pytestmark = pytest.mark.skipif(not IS_MCP_1, reason="this is mcp 2; run make mcp-lane")
CALL = ToolCall(name="google_search", query="Tall Fox width")


def link_to(target, **settings) -> McpLink:
    chosen = LinkSettings(**{"connect_timeout": 20.0, "timeout": 20.0, **settings})
    return McpLink("server", lambda: open_session(target, timeout=20.0), settings=chosen, timing=Timing.real(0))


@asynccontextmanager
async def connected(target, **settings):
    toolbox = await McpToolbox.connect(link_to(target, **settings))
    try:
        yield toolbox
    finally:
        await toolbox.aclose()


async def test_both_transports_give_what_the_tools_give_in_this_process(our_url):
    expected = await shipped_toolbox().call(CALL)
    async with connected(HttpServer(our_url, TOKEN)) as http, connected(OURS) as stdio:
        assert http.specs == stdio.specs == (GOOGLE_SEARCH_SPEC, SNIPPET_SEARCH_SPEC)
        assert await http.call(CALL) == await stdio.call(CALL) == expected


async def test_an_episode_over_mcp_1_is_the_episode_without_mcp(our_url):
    local = await run_scripted_episode(shipped_toolbox())
    async with connected(HttpServer(our_url, TOKEN)) as remote:
        assert (await run_scripted_episode(remote)).trajectory == local.trajectory


async def test_a_wrong_token_is_an_error_that_says_where_to_look(our_url):
    remote = McpToolbox(link_to(HttpServer(our_url, SecretStr("wrong-wrong")), attempts=2), (GOOGLE_SEARCH_SPEC,))
    result = await remote.call(CALL)
    await remote.aclose()
    assert result.status is ToolStatus.ERROR
    assert "check its address and its token" in result.message


async def test_calls_survive_the_death_and_restart_of_the_server():
    with serve_over_http() as url:
        remote = await McpToolbox.connect(link_to(HttpServer(url, TOKEN), attempts=10))
        assert (await remote.call(CALL)).status is ToolStatus.OK
    calls = [asyncio.create_task(remote.call(CALL)) for _ in range(10)]
    await asyncio.sleep(0.1)
    with serve_over_http(int(url.split(":")[2].split("/")[0])):
        results = await asyncio.gather(*calls)
        await remote.aclose()
    assert {result.status for result in results} == {ToolStatus.OK}


CRASHING = """
import os
from mcp.server.fastmcp import FastMCP
server = FastMCP("crashing")

@server.tool()
def die(query: str) -> str:
    os._exit(1)

@server.tool()
def live(query: str) -> str:
    return f"alive: {query}"

server.run("stdio")
"""


async def test_a_child_that_dies_mid_call_is_an_error_and_is_started_again():
    async with connected(StdioServer(sys.executable, ("-c", CRASHING)), repeats_lost_calls=False) as remote:
        died = await remote.call(ToolCall(name="die", query="now"))
        assert died.status is ToolStatus.ERROR
        assert died.message == "the connection to server was lost."
        alive = await remote.call(ToolCall(name="live", query="yes"))
        assert alive.snippets[0].text == "alive: yes"


async def test_a_call_that_hangs_is_a_timeout():
    hanging = CRASHING.replace("os._exit(1)", "__import__('time').sleep(60)")
    async with connected(StdioServer(sys.executable, ("-c", hanging)), timeout=0.5) as remote:
        assert (await remote.call(ToolCall(name="die", query="now"))).status is ToolStatus.TIMEOUT


async def test_a_third_party_server_is_mounted_by_config_under_its_own_names_and_schemas():
    mounted = {"name": "time", "command": str(TIME_SERVER)}
    async with open_tools(read_tools_config({"mounted": [mounted]}), {}) as tools:
        assert tools.toolbox.names == ("google_search", "snippet_search", "get_current_time", "convert_time")
        schema = {spec.name: spec.input_schema() for spec in tools.specs}["convert_time"]
        assert schema["required"] == ["source_timezone", "time", "target_timezone"]
        parameters = (("target_timezone", "Asia/Tokyo"), ("time", "12:00"))
        result = await tools.toolbox.call(ToolCall(name="convert_time", query="UTC", parameters=parameters))
    assert result.status is ToolStatus.OK
    # Tokyo is nine hours ahead of UTC, all the year.
    assert "T21:00:00+09:00" in json.loads(result.snippets[0].text)["target"]["datetime"]


async def test_a_third_party_servers_refusal_is_an_error_in_its_own_words():
    async with connected(StdioServer(str(TIME_SERVER))) as remote:
        result = await remote.call(ToolCall(name="get_current_time", query="Atlantis/Centre"))
    assert result.status is ToolStatus.ERROR
    assert "Atlantis/Centre" in result.message
