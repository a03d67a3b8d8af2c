"""What holds of our MCP client on either release of mcp: the cases that the tests here and the lane of mcp 1 share."""

import json
import sys
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from pydantic import SecretStr

from rubricem_agent.config.tools import ToolsConfig, read_tools_config
from rubricem_agent.wiring.tools import open_tools
from rubricem_env.domain.trajectory import ToolCall, ToolStatus
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.tools.mcp_client import McpLink, McpToolbox
from rubricem_env.tools.mcp_session import Opener, open_http, open_stdio
from rubricem_env.tools.spec import GOOGLE_SEARCH_SPEC

TOKEN = SecretStr("sesame-sesame")
CALL = ToolCall(name="google_search", query="Tall Fox width")
CONVERT = ToolCall(name="convert_time", query="UTC", parameters=(("target_timezone", "Asia/Tokyo"), ("time", "12:00")))
_CRASHING = """
import os
from {package} import {server}
server = {server}("crashing")

@server.tool()
def die(query: str) -> str:
    {death}

@server.tool()
def live(query: str) -> str:
    return f"alive: {{query}}"

server.run("stdio")
"""


def link_to(opener: Opener, **settings) -> McpLink:
    return McpLink("server", opener, timing=Timing.real(0), **{"connect_timeout": 20.0, **settings})


@asynccontextmanager
async def connected(opener: Opener, **settings):
    toolbox = await McpToolbox.connect(link_to(opener, **settings))
    try:
        yield toolbox
    finally:
        await toolbox.aclose()


def crashing_server(package: str, server: str, *, death: str = "os._exit(1)") -> Opener:
    """A child with two tools, written with a release's own server class; the call of `die` ends as `death` says."""
    return partial(open_stdio, sys.executable, ("-c", _CRASHING.format(package=package, server=server, death=death)))


async def check_a_dying_child_is_started_again(opener: Opener) -> None:
    async with connected(opener, repeats_lost_calls=False) as remote:
        died = await remote.call(ToolCall(name="die", query="now"))
        assert died.status is ToolStatus.ERROR
        assert died.message == "the connection to server was lost."
        alive = await remote.call(ToolCall(name="live", query="yes"))
        assert alive.snippets[0].text == "alive: yes"


async def check_a_wrong_token_says_where_to_look(address: str) -> None:
    opener = partial(open_http, address, SecretStr("wrong-wrong"))
    remote = McpToolbox(link_to(opener, attempts=2), (GOOGLE_SEARCH_SPEC,))
    result = await remote.call(CALL)
    await remote.aclose()
    assert result.status is ToolStatus.ERROR
    assert "check its address and its token" in result.message


def time_server_config(command: Path) -> ToolsConfig:
    """The server mcp-server-time, by other people, mounted beside ours."""
    return read_tools_config({"mounted": [{"name": "time", "command": str(command)}]})


async def check_the_time_server_is_mounted_as_it_is(command: Path) -> None:
    """Its own names and schemas, its answer as a snippet, its refusal in its own words."""
    async with open_tools(time_server_config(command), {"RUBRICEM_MAY_START": str(command)}) as tools:
        assert tools.toolbox.names == ("google_search", "snippet_search", "get_current_time", "convert_time")
        schema = {spec.name: spec.input_schema() for spec in tools.specs}["convert_time"]
        found = await tools.toolbox.call(CONVERT)
        refused = await tools.toolbox.call(ToolCall(name="get_current_time", query="Atlantis/Centre"))
    assert schema["required"] == ["source_timezone", "time", "target_timezone"]
    # Tokyo is nine hours ahead of UTC, all the year.
    assert "T21:00:00+09:00" in json.loads(found.snippets[0].text)["target"]["datetime"]
    assert refused.status is ToolStatus.ERROR
    assert "Atlantis/Centre" in refused.message
