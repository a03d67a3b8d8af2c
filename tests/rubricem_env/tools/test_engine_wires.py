"""Each search service against a loopback server that speaks its published schema, its refusals and its limits.

The replies and refusals are transcribed by hand from the services' own documents, of November 2026.
"""

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
from rubricem_env.domain.trajectory import Snippet, ToolCall, ToolStatus
from rubricem_env.llm.limits import RetryPolicy, Timing
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.tools.engines import ENGINES, WIRES
from rubricem_env.tools.guard import GuardedTool, GuardSettings
from rubricem_env.tools.http import SearchEngine
from tests.fakes import ManualTime
from tests.search_server import SearchReply, SearchServer

KEY = "canary-key-4711"
WEB = ToolCall(name="google_search", query="How wide is Tall Fox?")
PAPERS = ToolCall(name="snippet_search", query="How wide is Tall Fox?", parameters=(("limit", "2"), ("year", "2018-")))
ATOM = """<?xml version="1.0" encoding="UTF-8"?>
<feed xmlns="http://www.w3.org/2005/Atom" xmlns:arxiv="http://arxiv.org/schemas/atom">
  <title type="html">ArXiv Query</title><id>http://arxiv.org/api/x</id>
  {entries}
</feed>"""
ENTRY = """<entry><id>http://arxiv.org/abs/2401.00001v2</id><published>2024-01-01T00:00:00Z</published>
  <title>Rivers of
  the North</title><summary>  Tall Fox is
  60 m wide. </summary><author><name>A. Nor</name></author></entry>"""
FOUND = {
    "serper": {
        "searchParameters": {"q": "x", "type": "search"},
        "answerBox": {"snippet": "60 m", "title": "Tall Fox"},
        "organic": [{"title": "Rivers", "link": "https://a.example", "snippet": "Tall Fox is 60 m wide.", "position": 1}],
    },
    "tavily": {
        "query": "x",
        "answer": "60 m",
        "images": [],
        "results": [
            {"title": "Rivers", "url": "https://a.example", "content": "Tall Fox is 60 m wide.", "score": 0.9},
            {"title": "Empty", "url": "https://b.example", "content": "", "score": 0.1, "raw_content": None},
        ],
        "response_time": 1.67,
    },
    "exa": {
        "requestId": "b5947044c4b78efa9552a7c89b306d95",
        "results": [
            {
                "id": "https://a.example",
                "title": "Rivers",
                "url": "https://a.example",
                "publishedDate": None,
                "highlights": ["Tall Fox is 60 m wide.", "It freezes."],
                "highlightScores": [0.5, 0.2],
            }
        ],
        "costDollars": {"total": 0.007},
    },
    "brave": {
        "type": "search",
        "query": {"original": "x"},
        "web": {
            "type": "search",
            "results": [
                {
                    "title": "Rivers &amp; Lakes",
                    "url": "https://a.example",
                    "description": "Tall Fox is 60&nbsp;m wide.",
                    "extra_snippets": ["It freezes."],
                }
            ],
        },
    },
    "searxng": {
        "query": "x",
        "number_of_results": 0,
        "results": [{"title": "Rivers", "url": "https://a.example", "content": "Tall Fox is 60 m wide.", "engine": "mojeek"}],
        "answers": [{"answer": "60 m", "engine": "ddg definitions", "template": "answer/legacy.html"}],
        "infoboxes": [],
        "suggestions": [],
        "unresponsive_engines": [["brave", "too many requests"]],
    },
    "semantic_scholar": {
        "data": [
            {
                "score": 0.5,
                "paper": {"corpusId": "17", "title": "Rivers", "authors": ["A. Nor"]},
                "snippet": {"text": "Tall Fox is 60 m wide.", "snippetKind": "body"},
            }
        ]
    },
    "openalex": {
        "meta": {"count": 1, "per_page": 2},
        "results": [
            {
                "id": "https://openalex.org/W1",
                "doi": "https://doi.org/10.1/a",
                "title": "Rivers",
                "abstract_inverted_index": {"Tall": [0], "wide.": [5], "m": [4], "60": [3], "is": [2], "Fox": [1]},
            },
            {"id": "https://openalex.org/W2", "doi": None, "title": "No text", "abstract_inverted_index": None},
        ],
    },
    "arxiv": ATOM.format(entries=ENTRY),
}  # fmt: skip
EMPTY = {
    "serper": {"searchParameters": {}, "organic": []},
    "tavily": {"query": "x", "answer": None, "results": []},
    "exa": {"requestId": "1", "results": []},
    "brave": {"type": "search", "query": {"original": "x"}},
    "searxng": {"results": [], "answers": [], "infoboxes": [], "unresponsive_engines": []},
    "semantic_scholar": {"data": []},
    "openalex": {"meta": {"count": 0}, "results": []},
    "arxiv": ATOM.format(entries=""),
}
WIDE = "Tall Fox is 60 m wide."
READ = {
    "serper": ("60 m", Snippet(text=WIDE, title="Rivers", url="https://a.example")),
    "tavily": ("60 m", Snippet(text=WIDE, title="Rivers", url="https://a.example")),
    "exa": ("", Snippet(text=f"{WIDE} [...] It freezes.", title="Rivers", url="https://a.example")),
    "brave": (
        "",
        Snippet(text="Tall Fox is 60\xa0m wide. [...] It freezes.", title="Rivers & Lakes", url="https://a.example"),
    ),
    "searxng": ("60 m", Snippet(text=WIDE, title="Rivers", url="https://a.example")),
    "semantic_scholar": ("", Snippet(text=WIDE, title="Rivers", url="https://api.semanticscholar.org/CorpusID:17")),
    "openalex": ("", Snippet(text=WIDE, title="Rivers", url="https://doi.org/10.1/a")),
    "arxiv": ("", Snippet(text=WIDE, title="Rivers of the North", url="http://arxiv.org/abs/2401.00001v2")),
}
ASKED = {
    "serper": ("/", {}, {"q": WEB.query, "num": 5}),
    "tavily": ("/search", {}, {"query": WEB.query, "max_results": 5, "include_answer": True}),
    "exa": ("/search", {}, {"query": WEB.query, "numResults": 5, "contents": {"highlights": True}}),
    "brave": (
        "/res/v1/web/search",
        {"q": WEB.query, "count": "5", "text_decorations": "false", "extra_snippets": "true"},
        None,
    ),
    "searxng": ("/search", {"q": WEB.query, "format": "json"}, None),
    "semantic_scholar": ("/graph/v1/snippet/search", {"query": PAPERS.query, "limit": "2", "year": "2018-"}, None),
    "openalex": (
        "/works",
        {
            # The question mark is an operator of its search.
            "search": "How wide is Tall Fox ",
            "filter": "has_abstract:true,from_publication_date:2018-01-01,to_publication_date:9999-12-31",
            "select": "id,doi,title,abstract_inverted_index",
            "per_page": "2",
            "api_key": KEY,
        },
        None,
    ),
    "arxiv": (
        "/api/query",
        {
            "search_query": "(all:How OR all:wide OR all:is OR all:Tall OR all:Fox) "
            "AND submittedDate:[201801010000 TO 999912312359]",
            "max_results": "2",
            "sortBy": "relevance",
        },
        None,
    ),
}


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
    web, papers = ({name for name, one in ENGINES.items() if one.tool == tool} for tool in (WEB.name, PAPERS.name))
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


@pytest.mark.parametrize("engine", FOUND)
async def test_an_engine_is_asked_and_read_as_its_documents_say(engine):
    async with served(engine, reply(FOUND[engine])) as (tool, server):
        result = await tool.call(call_of(engine))
    assert (result.status, result.summary, result.snippets) == (ToolStatus.OK, READ[engine][0], (READ[engine][1],))
    (request,) = server.requests
    assert (request["path"], request["query"], request["json"]) == ASKED[engine]
    header = ENGINES[engine].header
    if header:
        assert request["headers"][header.lower()] == (f"Bearer {KEY}" if header == "Authorization" else KEY)


@pytest.mark.parametrize("engine", EMPTY)
async def test_nothing_found_is_an_empty_result_and_not_a_failure(engine):
    async with served(engine, reply(EMPTY[engine])) as (tool, server):
        assert (await tool.call(call_of(engine))).status is ToolStatus.EMPTY
    assert len(server.requests) == 1


def brave_refusal(code, status):
    return {
        "type": "ErrorResponse",
        "error": {"id": "5d832250-9396-4f6e-b84a-2a1fe524cd7d", "status": status, "detail": "Refused.", "code": code},
        "time": 1663072993,
    }


def tavily_refusal(error):
    return {"detail": {"error": error}}


NO_KEY = {
    "serper": ({"message": "Unauthorized.", "statusCode": 403}, 403),
    "tavily": (tavily_refusal("Unauthorized: missing or invalid API key."), 401),
    "exa": ({"requestId": "1", "error": "Invalid API key", "tag": "INVALID_API_KEY"}, 401),
    "brave": (brave_refusal("SUBSCRIPTION_TOKEN_INVALID", 422), 422),
    "searxng": ("<html><h1>Forbidden</h1></html>", 403),
    "semantic_scholar": ({"message": "Forbidden"}, 403),
    "openalex": ({"error": "Invalid or missing API key", "message": "The API key is not valid."}, 401),
}
NO_MONEY = {
    "serper": ({"message": "Not enough credits", "statusCode": 400}, 400),
    "tavily": (tavily_refusal("This request exceeds your plan's set usage limit. Please upgrade your plan."), 432),
    "exa": ({"requestId": "1", "error": "No more credits", "tag": "NO_MORE_CREDITS"}, 402),
    "brave": (brave_refusal("QUOTA_LIMITED", 429), 429),
    "openalex": (
        {
            "error": "Rate limit exceeded",
            "message": "Insufficient budget. This request costs $0.001 but you only have $0 remaining. Resets at "
            "midnight UTC.",
            "retryAfter": 5297,
        },
        429,
    ),
}
TOO_MANY = {
    "serper": {"message": "Too Many Requests", "statusCode": 429},
    "tavily": tavily_refusal("Your request has been blocked due to excessive requests."),
    "exa": {"requestId": "1", "error": "Rate limit exceeded"},
    "brave": brave_refusal("RATE_LIMITED", 429),
    "searxng": "Too Many Requests",
    "semantic_scholar": {"message": "Too Many Requests. Please wait and try again.", "code": "429"},
    "openalex": {"error": "Rate limit exceeded", "message": "More than 100 requests in a second."},
    "arxiv": "Rate exceeded.",
}


@pytest.mark.parametrize("engine", NO_KEY)
async def test_a_refused_key_is_told_once_and_without_the_key(engine):
    body, status = NO_KEY[engine]
    async with served(engine, reply(body, status=status)) as (tool, server):
        result = await tool.call(call_of(engine))
    assert (result.status, len(server.requests)) == (ToolStatus.ERROR, 1)
    assert str(status) in result.message
    assert KEY not in result.message


@pytest.mark.parametrize("engine", NO_MONEY)
async def test_an_account_without_money_is_not_asked_again_for_a_while(engine):
    body, status = NO_MONEY[engine]
    time = ManualTime()
    replies = [reply(body, status=status), reply(FOUND[engine])]
    async with served(engine, *replies, timing=time.timing()) as (tool, server):
        first, second = await tool.call(call_of(engine)), await tool.call(call_of(engine))
        assert len(server.requests) == 1
        time.now += 31
        paid = await tool.call(call_of(engine))
    assert "out of money or over its limit" in first.message
    assert "is out of money or over its limit and is not called for 30 s more" in second.message
    assert (first.status, second.status, paid.status) == (ToolStatus.ERROR, ToolStatus.ERROR, ToolStatus.OK)


@pytest.mark.parametrize("engine", TOO_MANY)
async def test_a_rate_limit_is_waited_for_and_an_outage_tried_again(engine):
    limited = reply(TOO_MANY[engine], status=429, headers={"retry-after": "0.2"})
    replies = [limited, reply({}, status=503), reply(FOUND[engine])]
    async with served(engine, *replies) as (tool, server):
        began = asyncio.get_running_loop().time()
        assert (await tool.call(call_of(engine))).status is ToolStatus.OK
        assert asyncio.get_running_loop().time() - began >= 0.2
    assert len(server.requests) == 3


@pytest.mark.parametrize("engine", FOUND)
@pytest.mark.parametrize("body", [[1, 2], {"message": "Too Many Requests"}, {"results": None}, "<html>Sign in</html>"])
async def test_a_reply_of_another_shape_is_a_failure_and_never_an_empty_result(engine, body):
    async with served(engine, reply(body)) as (tool, _):
        assert (await tool.call(call_of(engine))).status is ToolStatus.ERROR


async def test_searxng_whose_engines_are_silent_has_not_found_nothing():
    silent = {**EMPTY["searxng"], "unresponsive_engines": [["google", "CAPTCHA"], ["bing", "timeout"]]}
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
        async with served("openalex", reply(FOUND["openalex"])) as (tool, server):
            await tool.call(PAPERS)
    assert server.requests[0]["query"]["api_key"] == KEY
    assert "/works?search=" in caplog.text
    assert KEY not in caplog.text


async def test_a_query_is_cut_to_what_brave_takes():
    async with served("brave", SearchReply(EMPTY["brave"])) as (tool, server):
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


SERPER = SearchReply(FOUND["serper"])
BRAVE = SearchReply(FOUND["brave"])


@pytest.mark.parametrize(
    ("failure", "asked"),
    [
        (SearchReply(*NO_MONEY["serper"]), 1),
        (SearchReply({"message": "down"}, status=503), 2),
        (SearchReply({"message": "slow down"}, status=429, headers={"retry-after": "3600"}), 1),
    ],
)
async def test_the_next_engine_answers_where_one_is_out_of_money_down_or_too_busy(failure, asked):
    serper, brave = SearchServer(failure, *[failure] * asked, SERPER), SearchServer(BRAVE)
    async with opened("google_search", ("serper", serper), ("brave", brave)) as tools:
        result = await tools.toolbox.call(WEB)
        assert (result.snippets, len(serper.requests)) == ((READ["brave"][1],), asked)
        assert tools.budget.total.dollars == pytest.approx(0.005)
        # The answer of the second is in the cache, and the first is asked before it again.
        await tools.toolbox.call(WEB)
    assert len(brave.requests) == 1


async def test_the_first_engine_is_asked_alone_as_long_as_it_answers():
    serper, brave = SearchServer(SERPER, SearchReply(EMPTY["serper"])), SearchServer(BRAVE)
    async with opened("google_search", ("serper", serper), ("brave", brave)) as tools:
        await tools.toolbox.call(WEB)
        empty = await tools.toolbox.call(ToolCall(name="google_search", query="Small Fox"))
    assert (len(serper.requests), len(brave.requests), empty.status) == (2, 0, ToolStatus.EMPTY)


async def test_where_no_engine_answers_each_says_why():
    scholar = SearchServer(SearchReply({"message": "no"}, status=403))
    openalex = SearchServer(SearchReply(*NO_MONEY["openalex"]))
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
    assert [google.engine, *(one.engine for one in google.then)] == names


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


@pytest.mark.parametrize("engine", [name for name, one in ENGINES.items() if one.key and name != "gemini"])
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
