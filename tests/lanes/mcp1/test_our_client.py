"""Our client where a library pins mcp below 2: it calls our server of today, and servers by other people."""

import asyncio
from functools import partial

import pytest

from rubricem_env.domain.trajectory import ToolCall, ToolStatus
from rubricem_env.testing.episodes import run_scripted_episode
from rubricem_env.tools.mcp_client import McpToolbox
from rubricem_env.tools.mcp_session import IS_MCP_1, open_http
from rubricem_env.tools.spec import GOOGLE_SEARCH_SPEC, SNIPPET_SEARCH_SPEC
from rubricem_env.world.offline import shipped_toolbox
from tests.lanes.mcp1.servers import OURS, TIME_SERVER, serve_over_http
from tests.rubricem_env.tools.mcp_cases import (
    CALL,
    TOKEN,
    check_a_dying_child_is_started_again,
    check_a_wrong_token_says_where_to_look,
    check_the_time_server_is_mounted_as_it_is,
    connected,
    crashing_server,
    link_to,
)

pytestmark = pytest.mark.skipif(not IS_MCP_1, reason="this is mcp 2; run make mcp-lane")


async def test_both_transports_give_what_the_tools_give_in_this_process(our_url):
    expected = await shipped_toolbox().call(CALL)
    async with connected(partial(open_http, our_url, TOKEN)) as http, connected(OURS) as stdio:
        assert http.specs == stdio.specs == (GOOGLE_SEARCH_SPEC, SNIPPET_SEARCH_SPEC)
        assert await http.call(CALL) == await stdio.call(CALL) == expected


async def test_an_episode_over_mcp_1_is_the_episode_without_mcp(our_url):
    local = await run_scripted_episode(shipped_toolbox())
    async with connected(partial(open_http, our_url, TOKEN)) as remote:
        assert (await run_scripted_episode(remote)).trajectory == local.trajectory


async def test_a_wrong_token_is_an_error_that_says_where_to_look(our_url):
    await check_a_wrong_token_says_where_to_look(our_url)


async def test_calls_survive_the_death_and_restart_of_the_server():
    with serve_over_http() as url:
        remote = await McpToolbox.connect(link_to(partial(open_http, url, TOKEN), attempts=10))
        assert (await remote.call(CALL)).status is ToolStatus.OK
    calls = [asyncio.create_task(remote.call(CALL)) for _ in range(10)]
    await asyncio.sleep(0.1)
    with serve_over_http(int(url.split(":")[2].split("/")[0])):
        results = await asyncio.gather(*calls)
        await remote.aclose()
    assert {result.status for result in results} == {ToolStatus.OK}


async def test_a_child_that_dies_mid_call_is_an_error_and_is_started_again():
    await check_a_dying_child_is_started_again(crashing_server("mcp.server.fastmcp", "FastMCP"))


async def test_a_call_that_hangs_is_a_timeout():
    hanging = crashing_server("mcp.server.fastmcp", "FastMCP", death="__import__('time').sleep(60)")
    async with connected(hanging, timeout=0.5) as remote:
        assert (await remote.call(ToolCall(name="die", query="now"))).status is ToolStatus.TIMEOUT


async def test_a_third_party_server_is_mounted_under_its_own_names_and_answers_in_its_own_words():
    await check_the_time_server_is_mounted_as_it_is(TIME_SERVER)
