"""A server by other people, run by mcp 1.x in an environment of its own, mounted beside ours on mcp 2."""

from pathlib import Path

import pytest

from rubricem_agent.wiring.tools import open_tools, over_mcp
from tests.rubricem_env.tools.mcp_cases import CONVERT, check_the_time_server_is_mounted_as_it_is, time_server_config

TIME_SERVER = Path(__file__).parents[3] / ".venv-mcp1/bin/mcp-server-time"

pytestmark = pytest.mark.skipif(not TIME_SERVER.exists(), reason="mcp-server-time is not there; run make mcp-lane")


async def test_it_is_mounted_under_its_own_names_and_answers_in_its_own_words():
    await check_the_time_server_is_mounted_as_it_is(TIME_SERVER)


async def test_our_server_passes_its_tools_on():
    named = {"RUBRICEM_MAY_START": str(TIME_SERVER)}
    async with open_tools(time_server_config(TIME_SERVER), named) as tools, over_mcp(tools) as remote:
        assert await remote.call(CONVERT) == await tools.toolbox.call(CONVERT)
