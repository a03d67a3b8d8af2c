"""The search engines against servers on loopback that speak their formats, through the real clients."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from pydantic import SecretStr

from rubricem_agent.config.tools import read_tools_config
from rubricem_agent.wiring.tools import open_tools
from rubricem_env.domain.trajectory import Snippet, ToolCall, ToolStatus
from rubricem_env.llm.limits.retry import RetryPolicy
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.tools.google_search import GeminiGoogleSearch
from rubricem_env.tools.guard import GuardedTool, GuardSettings
from rubricem_env.tools.http import SearchEngine
from tests.replies import grounded_reply, scholar_reply
from tests.search_server import SearchReply, SearchServer

KEY = SecretStr("canary-key-4711")
ANSWER = "Überall gilt: the Tall Fox is 60 m wide. It freezes in winter."
GROUNDED = grounded_reply(
    ANSWER,
    sources=(
        ("River sheet", "https://a.example/1"),
        ("Ice report", "https://b.example/2"),
        ("Unused", "https://c.example"),
    ),
    spans=(("the Tall Fox is 60 m wide", 0), ("It freezes in winter", 1), ("the Tall Fox is 60 m wide", 1)),
)
MAKERS = {
    "gemini": lambda url: GeminiGoogleSearch(KEY, base_url=url),
    "scholar": lambda url: SearchEngine("semantic_scholar", key=KEY, url=url),
    "plain": lambda url: SearchEngine("plain", key=KEY, url=f"{url}/search"),
}
GOOD = {
    "gemini": GROUNDED,
    "scholar": scholar_reply("Foxes are tall."),
    "plain": {"organic": [{"title": "T", "link": "https://a.example", "snippet": "60 m"}]},
}
CALL = ToolCall(name="google_search", query="Tall Fox width")


@asynccontextmanager
async def engine(kind: str, *replies: SearchReply, timeout: float = 10.0):
    """A guarded engine, and the server behind it."""
    server = SearchServer(*replies)
    with serve_loopback(server.app) as url:
        settings = GuardSettings(timeout=timeout, retry=RetryPolicy(attempts=3, initial_delay=0.01, jitter=0.0))
        tool = GuardedTool(MAKERS[kind](url), settings, timing=Timing.real(0))
        try:
            yield tool, server
        finally:
            await tool.aclose()


async def test_gemini_gives_the_summary_and_what_each_source_supports():
    async with engine("gemini", SearchReply(GROUNDED)) as (tool, server):
        result = await tool.call(CALL)
    assert result.summary == ANSWER
    assert result.snippets == (
        Snippet(text="the Tall Fox is 60 m wide", title="River sheet", url="https://a.example/1"),
        Snippet(
            text="It freezes in winter [...] the Tall Fox is 60 m wide", title="Ice report", url="https://b.example/2"
        ),
    )
    asked = server.requests[0]
    assert asked["path"] == "/v1/models/gemini-3.8-flash:generateContent"
    assert asked["json"]["tools"] == [{"googleSearch": {}}]


async def test_spans_without_text_are_read_by_their_offsets_in_bytes():
    reply = grounded_reply(ANSWER, (("A", "https://a.example"),), (("the Tall Fox", 0),))
    del reply["candidates"][0]["groundingMetadata"]["groundingSupports"][0]["segment"]["text"]
    async with engine("gemini", SearchReply(reply)) as (tool, _):
        result = await tool.call(CALL)
    assert result.snippets[0].text == "the Tall Fox"


@pytest.mark.parametrize(
    ("reply", "status", "summary"),
    [
        (grounded_reply(ANSWER), ToolStatus.OK, ANSWER),
        (grounded_reply(" "), ToolStatus.EMPTY, ""),
        ({"promptFeedback": {"blockReason": "SAFETY"}}, ToolStatus.BLOCKED, ""),
    ],
)
async def test_gemini_without_sources_is_a_summary_or_nothing_or_blocked(reply, status, summary):
    async with engine("gemini", SearchReply(reply)) as (tool, _):
        result = await tool.call(CALL)
    assert (result.status, result.summary, result.snippets) == (status, summary, ())


async def test_geminis_retry_info_is_waited_for():
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.3s"}]
    busy = SearchReply({"error": {"code": 429, "message": "quota", "details": details}}, status=429)
    async with engine("gemini", busy, SearchReply(GROUNDED)) as (tool, _):
        started = asyncio.get_running_loop().time()
        assert (await tool.call(CALL)).status is ToolStatus.OK
        assert asyncio.get_running_loop().time() - started >= 0.3


async def test_semantic_scholar_gets_its_own_parameters():
    parameters = (("fieldsofstudy", "Medicine, Biology"), ("limit", "7"), ("year", "2018 - 2022"))
    async with engine("scholar", SearchReply(GOOD["scholar"])) as (tool, server):
        result = await tool.call(ToolCall(name="snippet_search", query="foxes", parameters=parameters))
    expected = Snippet(text="Foxes are tall.", title="Paper 1", url="https://api.semanticscholar.org/CorpusID:1")
    assert result.snippets == (expected,)
    assert server.requests[0]["query"] == {
        "query": "foxes",
        "limit": "7",
        "year": "2018-2022",
        "fieldsOfStudy": "Medicine,Biology",
    }
    assert server.requests[0]["headers"]["x-api-key"] == KEY.get_secret_value()


async def test_a_plain_engine_gives_its_answer_box_and_results():
    reply = {"answerBox": {"answer": "60 m"}, **GOOD["plain"]}
    async with engine("plain", SearchReply(reply)) as (tool, server):
        result = await tool.call(CALL)
    assert result.summary == "60 m"
    assert result.snippets == (Snippet(text="60 m", title="T", url="https://a.example"),)
    assert server.requests[0]["json"] == {"q": "Tall Fox width", "num": 5}


BROKEN = {
    "html for json": (SearchReply("<html>Sign in</html>", media_type="text/html"), ToolStatus.ERROR, 3),
    "429": (SearchReply({"error": {"code": 429, "message": "slow down"}}, status=429), ToolStatus.RATE_LIMITED, 3),
    "503": (SearchReply({"error": {"code": 503, "message": "down"}}, status=503), ToolStatus.ERROR, 3),
    "wrong key": (SearchReply({"error": {"code": 403, "message": "bad key"}}, status=403), ToolStatus.ERROR, 1),
    "hangs": (SearchReply({}, delay=20.0), ToolStatus.TIMEOUT, 3),
    "json of another shape": (SearchReply([1, 2, 3]), ToolStatus.ERROR, 3),
    "a message with status 200": (SearchReply({"message": "Too Many Requests"}), ToolStatus.ERROR, 3),
}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("failure", BROKEN)
async def test_every_failure_is_typed_and_one_sentence(kind, failure):
    reply, status, requests = BROKEN[failure]
    async with engine(kind, reply, timeout=0.3 if failure == "hangs" else 10.0) as (tool, server):
        result = await tool.call(CALL)
    assert result.status is status
    assert result.message.endswith((".", "on."))
    assert "\n" not in result.message
    assert KEY.get_secret_value() not in result.message
    assert len(server.requests) == requests


@pytest.mark.parametrize("kind", MAKERS)
async def test_a_server_that_is_not_there_is_an_error(kind):
    settings = GuardSettings(retry=RetryPolicy(attempts=2, initial_delay=0.01))
    tool = GuardedTool(MAKERS[kind]("http://127.0.0.1:9"), settings, timing=Timing.real(0))
    result = await tool.call(CALL)
    await tool.aclose()
    assert (result.status, "cannot be reached" in result.message) == (ToolStatus.ERROR, True)


@pytest.mark.parametrize("kind", ["scholar", "plain"])
async def test_a_body_of_500_MB_is_not_read_to_its_end(kind):
    async with engine(kind, SearchReply(endless=True)) as (tool, server):
        result = await tool.call(CALL)
    assert result.status is ToolStatus.ERROR
    assert "more than 5,000,000 bytes" in result.message
    assert len(server.requests) == 1


async def test_a_search_that_thought_up_to_its_limit_is_not_nothing_found():
    reply = grounded_reply("")
    reply["candidates"][0]["finishReason"] = "MAX_TOKENS"
    async with engine("gemini", SearchReply(reply)) as (tool, server):
        result = await tool.call(CALL)
    assert (result.status, len(server.requests)) == (ToolStatus.ERROR, 3)
    assert result.message == "google_search ran out of tokens before it wrote; ask for less at once."


async def grounded_by(address: str, *replies: SearchReply) -> tuple[str, list]:
    """The address of a source that grounding names by one, and the requests; replies follow that of the model."""

    class Server(SearchServer):
        url = ""

        async def _answer(self, request):
            if not self.requests:
                source = (("River sheet", address.replace("HERE", self.url)),)
                self._replies = (
                    SearchReply(grounded_reply(ANSWER, source, (("the Tall Fox is 60 m wide", 0),))),
                    *replies,
                )
            return await super()._answer(request)

    server = Server(SearchReply())
    with serve_loopback(server.app) as server.url:
        tool = GuardedTool(GeminiGoogleSearch(KEY, base_url=f"{server.url}/v1"), timing=Timing.real(0))
        result = await tool.call(CALL)
        await tool.aclose()
    return result.snippets[0].url.replace(server.url, "HERE"), server.requests


REDIRECT = "HERE/grounding-api-redirect/" + "A" * 400


async def test_a_redirect_of_grounding_is_replaced_by_the_address_of_its_source():
    found = SearchReply({}, status=302, headers={"location": "https://a.example/rivers"})
    url, (_, looked_up) = await grounded_by(REDIRECT, found)
    assert url == "https://a.example/rivers"
    assert KEY.get_secret_value() not in str(looked_up)


@pytest.mark.parametrize(
    "reply", [SearchReply({}, status=404), SearchReply({}, status=302, headers={"location": "javascript:alert(1)"})]
)
async def test_a_redirect_that_leads_nowhere_is_kept(reply):
    url, requests = await grounded_by(REDIRECT, reply)
    assert (url, len(requests)) == (REDIRECT, 2)


@pytest.mark.parametrize("address", ["HERE/page", "http://10.0.0.1/grounding-api-redirect/A"])
async def test_no_other_address_is_looked_up(address):
    url, requests = await grounded_by(address)
    assert (url, len(requests)) == (address, 1)


async def test_what_google_search_sends_is_a_setting():
    server = SearchServer(SearchReply(GROUNDED))
    with serve_loopback(server.app) as url:
        settings = {"url": f"{url}/v1", "system": "Answer in ten words.", "temperature": 1.0, "max_output_tokens": 512}
        config = read_tools_config({"backend": "web", "google_search": settings})
        async with open_tools(config, {"GEMINI_API_KEY": "k"}) as opened:
            await opened.toolbox.call(CALL)
    sent = server.requests[0]["json"]
    assert sent["systemInstruction"]["parts"] == [{"text": "Answer in ten words."}]
    assert (sent["generationConfig"]["temperature"], sent["generationConfig"]["maxOutputTokens"]) == (1.0, 512)
