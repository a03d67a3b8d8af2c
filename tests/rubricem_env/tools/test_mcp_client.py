"""MCP for real: our server over both transports, our client against servers that live, die and lie."""

import asyncio
import sys
from contextlib import asynccontextmanager
from functools import partial

import httpx2
import mcp
import pytest

from rubricem_env.domain.trajectory import ToolCall, ToolResult, ToolStatus
from rubricem_env.testing.episodes import ScriptedTool
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.tools.base import LocalToolbox
from rubricem_env.tools.mcp_client import McpToolbox
from rubricem_env.tools.mcp_result import read_outcome
from rubricem_env.tools.mcp_server import http_app, tool_server
from rubricem_env.tools.mcp_session import open_http, open_in_process, open_stdio
from rubricem_env.tools.spec import GOOGLE_SEARCH_SPEC
from rubricem_env.world.offline import shipped_toolbox
from tests.rubricem_env.tools.mcp_cases import (
    CALL,
    TOKEN,
    check_a_dying_child_is_started_again,
    check_a_wrong_token_says_where_to_look,
    connected,
    crashing_server,
    link_to,
)
from tests.search_server import SearchReply, SearchServer

SERVE = "from rubricem_agent.cli.tools import tools_app; tools_app()"
OURS = partial(open_stdio, sys.executable, ("-c", SERVE, "serve", "--backend", "offline"))


def server_of(toolbox: LocalToolbox):
    return tool_server(toolbox, toolbox.specs, "1")


@asynccontextmanager
async def over_http(toolbox: LocalToolbox, **settings):
    with serve_loopback(http_app(server_of(toolbox), token=TOKEN)) as url:
        async with connected(partial(open_http, f"{url}/mcp", TOKEN), **settings) as remote:
            yield remote


async def test_both_transports_and_the_local_toolbox_give_equal_results():
    expected = await shipped_toolbox().call(CALL)
    async with over_http(shipped_toolbox()) as http, connected(OURS) as stdio:
        assert http.names == stdio.names == ("google_search", "snippet_search")
        assert await http.call(CALL) == await stdio.call(CALL) == expected


async def test_near_misses_are_repaired_before_they_leave():
    async with over_http(shipped_toolbox()) as remote:
        result = await remote.call(ToolCall(name="Scholar_Search", query="river", parameters=(("numresults", "2"),)))
    assert len(result.snippets) == 2
    assert result.executed is not None
    assert result.executed.written_name == "Scholar_Search"


async def test_a_foreign_client_sees_typed_schemas_and_gets_text_and_structure():
    async with mcp.Client(server_of(shipped_toolbox())) as client:
        offered = {tool.name: tool for tool in (await client.list_tools()).tools}
        limit = offered["snippet_search"].input_schema["properties"]["limit"]
        assert (limit["type"], limit["minimum"], limit["maximum"]) == ("integer", 1, 10)
        assert offered["google_search"].output_schema is not None
        result = await client.call_tool("snippet_search", {"query": "Tall Fox", "limit": 1})
        assert not result.is_error
        assert "Tall Fox" in result.content[0].text
        assert ToolResult.model_validate(result.structured_content, strict=False).snippets


async def test_a_foreign_clients_mistake_and_a_bug_of_ours_are_results_and_not_a_broken_session():
    def explode(_):
        raise RuntimeError("bug")

    mistakes = (
        ("bing", {}),
        ("google_search", {}),
        ("google_search", {"q": "Tall Fox"}),
        ("google_search", {"query": "x"}),
    )
    lacks = "lacks the argument 'query'; it takes query"
    sentences = ("no tool", f"{lacks}, and got none.", f"{lacks}, and got q.", "RuntimeError")
    async with mcp.Client(server_of(LocalToolbox(ScriptedTool(explode)))) as client:
        for (name, arguments), said in zip(mistakes, sentences, strict=True):
            result = await client.call_tool(name, arguments)
            assert result.is_error
            assert result.content[0].text.startswith("error: ")
            assert said in result.content[0].text


async def test_every_status_arrives_as_it_was():
    for status in ToolStatus:
        sent = ToolResult(status=status, message="so it is." if status.is_error else "")
        async with connected(
            partial(open_in_process, server_of(LocalToolbox(ScriptedTool(lambda _, s=sent: s))))
        ) as remote:
            assert await remote.call(CALL) == sent


async def test_health_is_open_and_the_protocol_wants_the_token():
    with serve_loopback(http_app(server_of(shipped_toolbox()), token=TOKEN)) as url:
        async with httpx2.AsyncClient() as client:
            assert (await client.get(f"{url}/health")).json() == {"status": "ok"}
            assert (await client.get(f"{url}/ready")).json() == {"ready": True}
            assert (await client.post(f"{url}/mcp", json={})).status_code == 401
            wrong = {"Authorization": "Bearer wrong"}
            assert (await client.post(f"{url}/mcp", json={}, headers=wrong)).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "127.0.0.1:1@evil.example"},
        {"host": "[::1].evil.example"},
        {"host": "[::1]evil.example:80"},
        {"host": "localhost.evil.example"},
        {"host": "127.0.0.1:80:80"},
        {"origin": "http://127.0.0.1:1@evil.example"},
        {"origin": "http://[::1].evil.example"},
        {"origin": "null"},
    ],
)
async def test_a_request_under_a_foreign_name_is_refused_on_loopback(headers):
    with serve_loopback(http_app(server_of(shipped_toolbox()), token=None)) as url:
        async with httpx2.AsyncClient() as client:
            refused = await client.post(f"{url}/mcp", json={}, headers=headers)
    assert refused.status_code in (403, 421)


async def test_a_wrong_token_is_an_error_that_says_where_to_look():
    with serve_loopback(http_app(server_of(shipped_toolbox()), token=TOKEN)) as url:
        await check_a_wrong_token_says_where_to_look(f"{url}/mcp")


async def test_a_call_that_hangs_is_a_timeout_and_the_next_one_works():
    tool = ScriptedTool(delay=0.0)
    async with over_http(LocalToolbox(tool), timeout=0.3) as remote:
        tool.delay = 20.0
        assert (await remote.call(CALL)).status is ToolStatus.TIMEOUT
        tool.delay = 0.0
        assert (await remote.call(CALL)).status is ToolStatus.OK


async def test_a_cancelled_call_is_cancelled_on_the_server_too():
    begun, ended = asyncio.Event(), asyncio.Event()

    class Slow(ScriptedTool):
        async def call(self, call):
            begun.set()
            try:
                return await super().call(call)
            finally:
                ended.set()

    async with connected(partial(open_in_process, server_of(LocalToolbox(Slow(delay=30))))) as remote:
        calling = asyncio.create_task(remote.call(CALL))
        await asyncio.wait_for(begun.wait(), 30)
        calling.cancel()
        await asyncio.wait_for(ended.wait(), 5)
        with pytest.raises(asyncio.CancelledError):
            await calling


# The server ends with connections open, which the collector may report.
@pytest.mark.no_cover
@pytest.mark.filterwarnings("default::pytest.PytestUnraisableExceptionWarning")
async def test_calls_that_a_server_drops_while_it_shuts_down_are_made_again_at_its_successor():
    hanging = ScriptedTool(delay=60.0)
    dying, reborn = LocalToolbox(hanging), LocalToolbox(ScriptedTool())
    with serve_loopback(http_app(server_of(dying), token=TOKEN)) as url:
        remote = await McpToolbox.connect(link_to(partial(open_http, f"{url}/mcp", TOKEN), attempts=10))
        calls = [asyncio.create_task(remote.call(CALL)) for _ in range(40)]
        async with asyncio.timeout(30):
            while not hanging.calls:
                await asyncio.sleep(0.01)
    with serve_loopback(http_app(server_of(reborn), token=TOKEN), port=int(url.rsplit(":", 1)[1])):
        results = await asyncio.gather(*calls)
        await remote.aclose()
    assert {result.status for result in results} == {ToolStatus.OK}


async def test_a_call_that_a_gateway_answers_with_503_is_lost_and_not_refused():
    app, failing = http_app(server_of(LocalToolbox(ScriptedTool())), token=TOKEN), []

    async def gateway(scope, receive, send):
        if scope["type"] == "http" and scope["method"] == "POST" and failing:
            await send({"type": "http.response.start", "status": failing.pop(), "headers": []})
            await send({"type": "http.response.body", "body": b"no server is there"})
        else:
            await app(scope, receive, send)

    with serve_loopback(gateway) as url:
        remote = await McpToolbox.connect(link_to(partial(open_http, f"{url}/mcp", TOKEN), attempts=10))
        failing += [503, 502]
        result = await remote.call(CALL)
        await remote.aclose()
    assert (result.status, failing) == (ToolStatus.OK, [])


async def test_a_child_that_dies_mid_call_is_an_error_and_is_started_again():
    await check_a_dying_child_is_started_again(crashing_server("mcp.server.mcpserver", "MCPServer"))


@pytest.mark.parametrize(
    ("address", "said"), [("", "server cannot be reached"), ("http://127.0.0.1:9", "cannot be reached: ConnectError")]
)
async def test_a_web_page_or_nobody_at_the_address_is_an_error(address, said):
    page = SearchServer(SearchReply("<html>Sign in</html>", media_type="text/html"))
    with serve_loopback(page.app) as url:
        remote = McpToolbox(link_to(partial(open_http, f"{address or url}/mcp"), attempts=2), (GOOGLE_SEARCH_SPEC,))
        result = await remote.call(CALL)
        await remote.aclose()
    assert result.status is ToolStatus.ERROR
    assert said in result.message


def test_a_link_serves_one_event_loop_after_another():
    async def once() -> ToolStatus:
        result = await remote.call(CALL)
        await remote.aclose()
        return result.status

    target = partial(open_in_process, server_of(shipped_toolbox()))
    remote = McpToolbox(link_to(target), shipped_toolbox().specs)
    assert [asyncio.run(once()), asyncio.run(once())] == [ToolStatus.OK] * 2


def test_foreign_text_becomes_snippets_and_a_foreign_error_an_error():
    found = read_outcome(("one", " ", "two"), server="time")
    assert [snippet.text for snippet in found.snippets] == ["one", "two"]
    failed = read_outcome(("no\nsuch zone",), is_error=True, server="time")
    assert (failed.status, failed.message) == (ToolStatus.ERROR, "time says: no such zone")
    assert read_outcome((), server="time").status is ToolStatus.EMPTY
    assert read_outcome((), {"status": "sunny"}, server="w").snippets[0].text == '{"status": "sunny"}'
