"""Several MCP servers behind one link: they share the calls, and one that dies, hangs or comes back loses none."""

import asyncio
import time
from functools import partial

import numpy as np
import pytest

from rubricem_env.domain.trajectory import ToolStatus
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.testing.episodes import ScriptedTool
from rubricem_env.testing.loopback import free_port, serve_loopback
from rubricem_env.tools.base import LocalToolbox
from rubricem_env.tools.mcp_client import McpLink, McpToolbox
from rubricem_env.tools.mcp_server import http_app, tool_server
from rubricem_env.tools.mcp_session import open_http
from rubricem_env.tools.spec import GOOGLE_SEARCH_SPEC
from tests.rubricem_env.tools.mcp_cases import CALL, TOKEN

pytestmark = pytest.mark.no_cover


def serving(tool: ScriptedTool, port: int = 0):
    toolbox = LocalToolbox(tool)
    return serve_loopback(http_app(tool_server(toolbox, toolbox.specs), token=TOKEN), port=port)


def remote_of(*urls: str, timing: Timing | None = None, **settings) -> McpToolbox:
    openers = [partial(open_http, f"{url}/mcp", TOKEN) for url in urls]
    link = McpLink("the pool", *openers, timing=timing or Timing.real(0), connect_timeout=20.0, **settings)
    return McpToolbox(link, [GOOGLE_SEARCH_SPEC])


async def statuses(remote: McpToolbox, number: int) -> set[ToolStatus]:
    return {result.status for result in await asyncio.gather(*(remote.call(CALL) for _ in range(number)))}


async def test_two_servers_share_the_calls_at_once_and_those_in_a_row():
    tools = ScriptedTool(delay=0.5), ScriptedTool(delay=0.5)
    with serving(tools[0]) as first, serving(tools[1]) as second:
        remote = remote_of(first, second)
        assert await statuses(remote, 20) == {ToolStatus.OK}
        assert [len(tool.calls) for tool in tools] == [10, 10]
        for tool in tools:
            tool.delay = 0.0
        for _ in range(4):
            await remote.call(CALL)
        await remote.aclose()
    assert [len(tool.calls) for tool in tools] == [12, 12]


# A server ends with connections open, which the collector may report.
@pytest.mark.filterwarnings("default::pytest.PytestUnraisableExceptionWarning")
async def test_a_server_that_is_killed_under_load_loses_no_call_and_is_used_again_when_it_is_back():
    later = [0.0]
    timing = Timing(lambda: time.monotonic() + later[0], asyncio.sleep, np.random.default_rng(0))
    dying, other, reborn = ScriptedTool(delay=60.0), ScriptedTool(), ScriptedTool()
    with serving(other) as second:
        with serving(dying) as first:
            remote = remote_of(first, second, timing=timing)
            calls = [asyncio.create_task(remote.call(CALL)) for _ in range(40)]
            while not dying.calls:
                await asyncio.sleep(0.01)
        assert {result.status for result in await asyncio.gather(*calls)} == {ToolStatus.OK}
        assert len(other.calls) == 40
        with serving(reborn, int(first.rpartition(":")[2])):
            assert await statuses(remote, 10) == {ToolStatus.OK}
            assert len(reborn.calls) == 0
            later[0] = 31.0
            assert await statuses(remote, 10) == {ToolStatus.OK}
            # One call tries the server that was away. After it the two share the calls again.
            assert len(reborn.calls) == 1
            assert await statuses(remote, 10) == {ToolStatus.OK}
            assert len(reborn.calls) == 6
            await remote.aclose()


async def test_a_call_that_hangs_at_one_server_is_made_at_the_other():
    hanging, other = ScriptedTool(delay=60.0), ScriptedTool()
    with serving(hanging) as first, serving(other) as second:
        remote = remote_of(first, second, timeout=0.5)
        result = await remote.call(CALL)
        await remote.aclose()
    assert (result.status, len(hanging.calls), len(other.calls)) == (ToolStatus.OK, 1, 1)


async def test_where_all_servers_are_dead_the_call_ends_in_one_sentence():
    remote = remote_of(*(f"http://127.0.0.1:{free_port()}" for _ in range(2)), attempts=3)
    result = await remote.call(CALL)
    await remote.aclose()
    assert result.status is ToolStatus.ERROR
    assert result.message.startswith("the pool cannot be reached: ConnectError: ")
    assert len(result.message.splitlines()) == 1


async def test_a_call_that_hangs_at_the_only_server_is_not_made_again():
    hanging = ScriptedTool(delay=60.0)
    with serving(hanging) as only:
        remote = remote_of(only, timeout=0.5)
        result = await remote.call(CALL)
        await remote.aclose()
    assert (result.status, len(hanging.calls)) == (ToolStatus.TIMEOUT, 1)
