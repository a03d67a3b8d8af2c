"""A server by other people, run by mcp 1.x in an environment of its own, mounted beside ours on mcp 2."""

import json
from pathlib import Path

import pytest

from rubricem_agent.build.tools import open_tools, over_mcp
from rubricem_agent.config.tools import read_tools_config
from rubricem_env.domain.tool import ToolCall, ToolStatus

TIME_SERVER = Path(__file__).parents[3] / ".venv-mcp1/bin/mcp-server-time"
MOUNTED = {"mounted": [{"name": "time", "command": str(TIME_SERVER)}]}
CONVERT = ToolCall(name="convert_time", query="UTC", parameters=(("target_timezone", "Asia/Tokyo"), ("time", "12:00")))

pytestmark = pytest.mark.skipif(not TIME_SERVER.exists(), reason="mcp-server-time is not there; run make mcp-lane")


async def test_its_tools_stand_beside_ours_under_their_own_names_and_schemas():
    async with open_tools(read_tools_config(MOUNTED), {}) as tools:
        assert tools.toolbox.names == ("google_search", "snippet_search", "get_current_time", "convert_time")
        schema = {spec.name: spec.input_schema() for spec in tools.specs}["convert_time"]
    assert schema["required"] == ["source_timezone", "time", "target_timezone"]


async def test_its_answer_is_a_snippet_and_its_refusal_an_error_in_its_own_words():
    async with open_tools(read_tools_config(MOUNTED), {}) as tools:
        found = await tools.toolbox.call(CONVERT)
        refused = await tools.toolbox.call(ToolCall(name="get_current_time", query="Atlantis/Centre"))
    # Tokyo is nine hours ahead of UTC, all the year.
    assert "T21:00:00+09:00" in json.loads(found.snippets[0].text)["target"]["datetime"]
    assert refused.status is ToolStatus.ERROR
    assert "Atlantis/Centre" in refused.message


async def test_our_server_passes_its_tools_on():
    async with open_tools(read_tools_config(MOUNTED), {}) as tools, over_mcp(tools) as remote:
        assert await remote.call(CONVERT) == await tools.toolbox.call(CONVERT)
