"""Each search service against a loopback server that speaks its published schema, its refusals and its limits."""

import asyncio
import logging
import re
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import get_args

import pytest
from pydantic import SecretStr

from rubricem_agent.config.search_engines import GoogleSearchConfig, SnippetSearchConfig
from rubricem_agent.config.tools import read_tools_config
from rubricem_agent.wiring.tools import open_tools
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.trajectory import ToolCall, ToolStatus
from rubricem_env.llm.limits.retry import RetryPolicy
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.tools.engines import ENGINES, WIRES
from rubricem_env.tools.guard import GuardedTool, GuardSettings
from rubricem_env.tools.http import SearchEngine
from tests.fakes import ManualTime
from tests.rubricem_env.tools.search_services import ATOM, ENTRY, KEY, PAPERS, SERVICES, WEB
from tests.search_server import SearchReply, SearchServer


def reply(body, **given):
    """A reply in JSON, or the text of one in XML or of a refusal."""
    return SearchReply(body, media_type="text/xml" if isinstance(body, str) else "application/json", **given)


def call_of(engine):
    return PAPERS if ENGINES[engine].tool == "snippet_search" else WEB


@asynccontextmanager
async def served(engine, *replies, timing=None, **settings):
    """A guarded engine, and the server behind it."""
    server = SearchServer(*replies)
    key = SecretStr(KEY) if ENGINES[engine].key else None
    retry = RetryPolicy(attempts=3, initial_delay=0.01, jitter=0.0)
    with serve_loopback(server.app) as url:
        backend = SearchEngine(engine, key=key, url=url)
        tool = GuardedTool(backend, GuardSettings(retry=retry, **settings), timing=timing or Timing.real(0))
        try:
            yield tool, server
        finally:
            await tool.aclose()


def test_a_config_names_every_engine_of_the_table_and_no_other():
    web, papers = (
        {name for name, engine in ENGINES.items() if engine.tool == tool} for tool in (WEB.name, PAPERS.name)
    )
    for model, names in ((GoogleSearchConfig, web), (SnippetSearchConfig, papers)):
        assert set(get_args(model.model_fields["engine"].annotation)) == names
    assert set(WIRES) == set(ENGINES) - {"gemini"}


def test_the_page_of_the_engines_has_their_tools_and_prices():
    page = (Path(__file__).parents[3] / "docs" / "tools.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.M))
    for name, engine in ENGINES.items():
        if name != "plain":
            tool, price, rate, key, _ = rows[name].split(" | ")
            assert (tool, float(price.split(",")[0])) == (engine.tool, engine.price)
            assert int(rate.replace(",", "")) == engine.rates.requests_per_minute
            assert engine.key in key


@pytest.mark.parametrize("engine", SERVICES)
async def test_an_engine_is_asked_and_read_as_its_documents_say(engine):
    service = SERVICES[engine]
    async with served(engine, reply(service.reply)) as (tool, server):
        result = await tool.call(call_of(engine))
    assert (result.status, result.summary, result.snippets) == (ToolStatus.OK, service.summary, (service.snippet,))
    (request,) = server.requests
    assert (request["path"], request["query"], request["json"]) == service.request
    header = ENGINES[engine].header
    if header:
        assert request["headers"][header.lower()] == (f"Bearer {KEY}" if header == "Authorization" else KEY)


@pytest.mark.parametrize("engine", SERVICES)
async def test_nothing_found_is_an_empty_result_and_not_a_failure(engine):
    async with served(engine, reply(SERVICES[engine].empty_reply)) as (tool, server):
        assert (await tool.call(call_of(engine))).status is ToolStatus.EMPTY
    assert len(server.requests) == 1


@pytest.mark.parametrize("engine", [name for name, service in SERVICES.items() if service.key_refused])
async def test_a_refused_key_is_reported_once_and_without_the_key(engine):
    body, status = SERVICES[engine].key_refused
    async with served(engine, reply(body, status=status)) as (tool, server):
        result = await tool.call(call_of(engine))
    assert (result.status, len(server.requests)) == (ToolStatus.ERROR, 1)
    assert str(status) in result.message
    assert KEY not in result.message


@pytest.mark.parametrize("engine", [name for name, service in SERVICES.items() if service.out_of_money])
async def test_an_account_without_money_is_not_asked_again_for_a_while(engine):
    body, status = SERVICES[engine].out_of_money
    time = ManualTime()
    replies = [reply(body, status=status), reply(SERVICES[engine].reply)]
    async with served(engine, *replies, timing=time.timing()) as (tool, server):
        first, second = await tool.call(call_of(engine)), await tool.call(call_of(engine))
        assert len(server.requests) == 1
        time.now += 31
        paid = await tool.call(call_of(engine))
    assert "out of money or over its limit" in first.message
    assert "is out of money or over its limit and is not called for 30 s more" in second.message
    assert (first.status, second.status, paid.status) == (ToolStatus.ERROR, ToolStatus.ERROR, ToolStatus.OK)


@pytest.mark.parametrize("engine", SERVICES)
async def test_a_rate_limit_is_waited_for_and_an_outage_tried_again(engine):
    body, status = SERVICES[engine].too_many_requests
    limited = reply(body, status=status, headers={"retry-after": "0.2"})
    replies = [limited, reply({}, status=503), reply(SERVICES[engine].reply)]
    async with served(engine, *replies) as (tool, server):
        began = asyncio.get_running_loop().time()
        assert (await tool.call(call_of(engine))).status is ToolStatus.OK
        assert asyncio.get_running_loop().time() - began >= 0.2
    assert len(server.requests) == 3


@pytest.mark.parametrize("engine", SERVICES)
@pytest.mark.parametrize("body", [[1, 2], {"message": "Too Many Requests"}, {"results": None}, "<html>Sign in</html>"])
async def test_a_reply_of_another_shape_is_a_failure_and_never_an_empty_result(engine, body):
    async with served(engine, reply(body)) as (tool, _):
        assert (await tool.call(call_of(engine))).status is ToolStatus.ERROR


async def test_searxng_whose_engines_are_silent_has_not_found_nothing():
    silent = {**SERVICES["searxng"].empty_reply, "unresponsive_engines": [["google", "CAPTCHA"], ["bing", "timeout"]]}
    async with served("searxng", SearchReply(silent)) as (tool, server):
        result = await tool.call(WEB)
    assert (result.status, len(server.requests)) == (ToolStatus.ERROR, 3)
    assert result.message == "searxng gave no results: its engines do not answer: google (CAPTCHA), bing (timeout)."


async def test_arxiv_s_refusal_in_an_entry_is_a_failure_and_entities_are_not_read():
    refused = ENTRY.replace("Rivers of\n  the North", "Error").replace("Tall Fox is", "incorrect id format, or")
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaa">]>' + ATOM.format(entries="").partition("?>")[2]
    async with served("arxiv", reply(ATOM.format(entries=refused)), reply(bomb)) as (tool, _):
        assert (await tool.call(PAPERS)).message.startswith("arxiv gave no results: incorrect id format")
        assert "unknown format" in (await tool.call(PAPERS)).message


async def test_a_key_in_an_address_is_in_no_log(caplog):
    with caplog.at_level(logging.DEBUG):
        async with served("openalex", reply(SERVICES["openalex"].reply)) as (tool, server):
            await tool.call(PAPERS)
    assert server.requests[0]["query"]["api_key"] == KEY
    assert "/works?search=" in caplog.text
    assert KEY not in caplog.text


async def test_a_query_is_cut_to_what_brave_takes():
    async with served("brave", SearchReply(SERVICES["brave"].empty_reply)) as (tool, server):
        await tool.call(ToolCall(name="google_search", query="word " * 80))
        await tool.call(ToolCall(name="google_search", query="longer word" * 80))
    sent = [request["query"]["q"] for request in server.requests]
    assert (len(sent[0].split()), len(sent[1])) == (50, 400)


@asynccontextmanager
async def opened(tool, *servers):
    """The tools of a config that names these engines in this order, each at its own server."""
    async with AsyncExitStack() as stack:
        urls = [stack.enter_context(serve_loopback(server.app)) for _, server in servers]
        order = [{"engine": engine, "url": url} for (engine, _), url in zip(servers, urls, strict=True)]
        config = read_tools_config({"backend": "web", "google_search": "serper", tool: order})
        environ = {engine.key: KEY for engine in ENGINES.values() if engine.key}
        yield await stack.enter_async_context(open_tools(config, environ))


SERPER = SearchReply(SERVICES["serper"].reply)
BRAVE = SearchReply(SERVICES["brave"].reply)


@pytest.mark.parametrize(
    ("failure", "asked"),
    [
        (SearchReply(*SERVICES["serper"].out_of_money), 1),
        (SearchReply({"message": "down"}, status=503), 2),
        (SearchReply({"message": "slow down"}, status=429, headers={"retry-after": "3600"}), 1),
    ],
)
async def test_the_next_engine_answers_where_one_is_out_of_money_down_or_too_busy(failure, asked):
    serper, brave = SearchServer(failure, *[failure] * asked, SERPER), SearchServer(BRAVE)
    async with opened("google_search", ("serper", serper), ("brave", brave)) as tools:
        result = await tools.toolbox.call(WEB)
        assert (result.snippets, len(serper.requests)) == ((SERVICES["brave"].snippet,), asked)
        assert tools.budget.total.dollars == pytest.approx(0.005)
        # The answer of the second is in the cache, and the first is asked before it again.
        await tools.toolbox.call(WEB)
    assert len(brave.requests) == 1


async def test_the_first_engine_is_asked_alone_as_long_as_it_answers():
    serper, brave = SearchServer(SERPER, SearchReply(SERVICES["serper"].empty_reply)), SearchServer(BRAVE)
    async with opened("google_search", ("serper", serper), ("brave", brave)) as tools:
        await tools.toolbox.call(WEB)
        empty = await tools.toolbox.call(ToolCall(name="google_search", query="Small Fox"))
    assert (len(serper.requests), len(brave.requests), empty.status) == (2, 0, ToolStatus.EMPTY)


async def test_where_no_engine_answers_each_says_why():
    scholar = SearchServer(SearchReply({"message": "no"}, status=403))
    openalex = SearchServer(SearchReply(*SERVICES["openalex"].out_of_money))
    async with opened("snippet_search", ("semantic_scholar", scholar), ("openalex", openalex)) as tools:
        result = await tools.toolbox.call(PAPERS)
    assert result.status is ToolStatus.ERROR
    assert result.message.startswith("semantic_scholar gave no results: it refuses the key or the request (403)")
    assert "openalex gave no results: its account is out of money" in result.message


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ("tavily", ["tavily"]),
        (["serper", "brave"], ["serper", "brave"]),
        (["serper", {"engine": "searxng", "url": "http://127.0.0.1:8080"}, "exa"], ["serper", "searxng", "exa"]),
        ({"engine": "serper", "then": [{"engine": "brave"}]}, ["serper", "brave"]),
    ],
)
def test_engines_are_written_as_a_name_settings_or_a_list_of_either(written, names):
    google = read_tools_config({"backend": "web", "google_search": written}).google_search
    assert [google.engine, *(entry.engine for entry in google.then)] == names


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (["serper", "bing"], "at google_search.then.0.engine"),
        ("searxng", 'needs google_search.url, such as "http://127.0.0.1:8080"'),
        ([], "at google_search"),
        (["serper", {"engin": "brave"}], "google_search has the unknown key 'engin'; did you mean 'engine'"),
    ],
)
def test_a_wrong_order_of_engines_is_named(written, message):
    with pytest.raises(ConfigError, match=message):
        read_tools_config({"backend": "web", "google_search": written})


@pytest.mark.parametrize("engine", [name for name, facts in ENGINES.items() if facts.key and name != "gemini"])
async def test_a_key_goes_to_its_own_service_or_to_a_host_that_the_user_names(engine):
    facts = ENGINES[engine]
    evil = {"engine": engine, "url": "https://evil.example"}
    settings = {"backend": "web", "google_search": {"engine": "searxng", "url": "http://127.0.0.1:1"}, facts.tool: evil}
    for environ, said in (
        ({facts.key: KEY}, f"{facts.key} is not sent to evil.example"),
        ({facts.key: KEY, f"{facts.key}_HOST": "evil.example"}, ""),
        ({}, f"{facts.key} in" if facts.needs_key else ""),
    ):
        try:
            async with open_tools(read_tools_config(settings), environ):
                refusal = ""
        except ConfigError as refused:
            refusal = str(refused)
        assert said in refusal
        assert bool(said) == bool(refusal)
        assert KEY not in refusal
