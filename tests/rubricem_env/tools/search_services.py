"""What each search service is sent and how it replies, transcribed by hand from its own documents of November 2026."""

from typing import Any, NamedTuple

from rubricem_env.domain.trajectory import Snippet, ToolCall

KEY = "canary-key-4711"
WEB = ToolCall(name="google_search", query="How wide is Tall Fox?")
PAPERS = ToolCall(name="snippet_search", query="How wide is Tall Fox?", parameters=(("limit", "2"), ("year", "2018-")))
WIDE = "Tall Fox is 60 m wide."
ATOM = """<?xml version="1.0" encoding="UTF-8"?>
<feed xmlns="http://www.w3.org/2005/Atom" xmlns:arxiv="http://arxiv.org/schemas/atom">
  <title type="html">ArXiv Query</title><id>http://arxiv.org/api/x</id>
  {entries}
</feed>"""
ENTRY = """<entry><id>http://arxiv.org/abs/2401.00001v2</id><published>2024-01-01T00:00:00Z</published>
  <title>Rivers of
  the North</title><summary>  Tall Fox is
  60 m wide. </summary><author><name>A. Nor</name></author></entry>"""


class SentRequest(NamedTuple):
    """The request that a service gets for a call."""

    path: str
    query: dict[str, str]
    json: Any


class Refusal(NamedTuple):
    """A reply that is no result."""

    body: Any
    status: int


class Service(NamedTuple):
    """One search service, by its documents."""

    request: SentRequest
    reply: Any
    """The reply to that request, as JSON or as the text of XML."""
    summary: str
    """The summary that is read from the reply."""
    snippet: Snippet
    """The one snippet that is read from the reply."""
    empty_reply: Any
    """A reply without results."""
    too_many_requests: Refusal
    key_refused: Refusal | None = None
    out_of_money: Refusal | None = None


def brave_refusal(code, status):
    return {
        "type": "ErrorResponse",
        "error": {"id": "5d832250-9396-4f6e-b84a-2a1fe524cd7d", "status": status, "detail": "Refused.", "code": code},
        "time": 1663072993,
    }


def tavily_refusal(error):
    return {"detail": {"error": error}}


SERVICES = {
    "serper": Service(
        request=SentRequest("/", {}, {"q": WEB.query, "num": 5}),
        reply={
            "searchParameters": {"q": "x", "type": "search"},
            "answerBox": {"snippet": "60 m", "title": "Tall Fox"},
            "organic": [
                {"title": "Rivers", "link": "https://a.example", "snippet": "Tall Fox is 60 m wide.", "position": 1}
            ],
        },
        summary="60 m",
        snippet=Snippet(text=WIDE, title="Rivers", url="https://a.example"),
        empty_reply={"searchParameters": {}, "organic": []},
        too_many_requests=Refusal({"message": "Too Many Requests", "statusCode": 429}, 429),
        key_refused=Refusal({"message": "Unauthorized.", "statusCode": 403}, 403),
        out_of_money=Refusal({"message": "Not enough credits", "statusCode": 400}, 400),
    ),
    "tavily": Service(
        request=SentRequest("/search", {}, {"query": WEB.query, "max_results": 5, "include_answer": True}),
        reply={
            "query": "x",
            "answer": "60 m",
            "images": [],
            "results": [
                {"title": "Rivers", "url": "https://a.example", "content": "Tall Fox is 60 m wide.", "score": 0.9},
                {"title": "Empty", "url": "https://b.example", "content": "", "score": 0.1, "raw_content": None},
            ],
            "response_time": 1.67,
        },
        summary="60 m",
        snippet=Snippet(text=WIDE, title="Rivers", url="https://a.example"),
        empty_reply={"query": "x", "answer": None, "results": []},
        too_many_requests=Refusal(tavily_refusal("Your request has been blocked due to excessive requests."), 429),
        key_refused=Refusal(tavily_refusal("Unauthorized: missing or invalid API key."), 401),
        out_of_money=Refusal(
            tavily_refusal("This request exceeds your plan's set usage limit. Please upgrade your plan."), 432
        ),
    ),
    "exa": Service(
        request=SentRequest("/search", {}, {"query": WEB.query, "numResults": 5, "contents": {"highlights": True}}),
        reply={
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
        summary="",
        snippet=Snippet(text=f"{WIDE} [...] It freezes.", title="Rivers", url="https://a.example"),
        empty_reply={"requestId": "1", "results": []},
        too_many_requests=Refusal({"requestId": "1", "error": "Rate limit exceeded"}, 429),
        key_refused=Refusal({"requestId": "1", "error": "Invalid API key", "tag": "INVALID_API_KEY"}, 401),
        out_of_money=Refusal({"requestId": "1", "error": "No more credits", "tag": "NO_MORE_CREDITS"}, 402),
    ),
    "brave": Service(
        request=SentRequest(
            "/res/v1/web/search",
            {"q": WEB.query, "count": "5", "text_decorations": "false", "extra_snippets": "true"},
            None,
        ),
        reply={
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
        summary="",
        snippet=Snippet(
            text="Tall Fox is 60\xa0m wide. [...] It freezes.", title="Rivers & Lakes", url="https://a.example"
        ),
        empty_reply={"type": "search", "query": {"original": "x"}},
        too_many_requests=Refusal(brave_refusal("RATE_LIMITED", 429), 429),
        key_refused=Refusal(brave_refusal("SUBSCRIPTION_TOKEN_INVALID", 422), 422),
        out_of_money=Refusal(brave_refusal("QUOTA_LIMITED", 429), 429),
    ),
    "searxng": Service(
        request=SentRequest("/search", {"q": WEB.query, "format": "json"}, None),
        reply={
            "query": "x",
            "number_of_results": 0,
            "results": [
                {"title": "Rivers", "url": "https://a.example", "content": "Tall Fox is 60 m wide.", "engine": "mojeek"}
            ],
            "answers": [{"answer": "60 m", "engine": "ddg definitions", "template": "answer/legacy.html"}],
            "infoboxes": [],
            "suggestions": [],
            "unresponsive_engines": [["brave", "too many requests"]],
        },
        summary="60 m",
        snippet=Snippet(text=WIDE, title="Rivers", url="https://a.example"),
        empty_reply={"results": [], "answers": [], "infoboxes": [], "unresponsive_engines": []},
        too_many_requests=Refusal("Too Many Requests", 429),
        key_refused=Refusal("<html><h1>Forbidden</h1></html>", 403),
    ),
    "semantic_scholar": Service(
        request=SentRequest("/graph/v1/snippet/search", {"query": PAPERS.query, "limit": "2", "year": "2018-"}, None),
        reply={
            "data": [
                {
                    "score": 0.5,
                    "paper": {"corpusId": "17", "title": "Rivers", "authors": ["A. Nor"]},
                    "snippet": {"text": "Tall Fox is 60 m wide.", "snippetKind": "body"},
                }
            ]
        },
        summary="",
        snippet=Snippet(text=WIDE, title="Rivers", url="https://api.semanticscholar.org/CorpusID:17"),
        empty_reply={"data": []},
        too_many_requests=Refusal({"message": "Too Many Requests. Please wait and try again.", "code": "429"}, 429),
        key_refused=Refusal({"message": "Forbidden"}, 403),
    ),
    "openalex": Service(
        request=SentRequest(
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
        reply={
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
        summary="",
        snippet=Snippet(text=WIDE, title="Rivers", url="https://doi.org/10.1/a"),
        empty_reply={"meta": {"count": 0}, "results": []},
        too_many_requests=Refusal(
            {"error": "Rate limit exceeded", "message": "More than 100 requests in a second."}, 429
        ),
        key_refused=Refusal({"error": "Invalid or missing API key", "message": "The API key is not valid."}, 401),
        out_of_money=Refusal(
            {
                "error": "Rate limit exceeded",
                "message": "Insufficient budget. This request costs $0.001 but you only have $0 remaining. Resets at "
                "midnight UTC.",
                "retryAfter": 5297,
            },
            429,
        ),
    ),
    "arxiv": Service(
        request=SentRequest(
            "/api/query",
            {
                "search_query": "(all:How OR all:wide OR all:is OR all:Tall OR all:Fox) "
                "AND submittedDate:[201801010000 TO 999912312359]",
                "max_results": "2",
                "sortBy": "relevance",
            },
            None,
        ),
        reply=ATOM.format(entries=ENTRY),
        summary="",
        snippet=Snippet(text=WIDE, title="Rivers of the North", url="http://arxiv.org/abs/2401.00001v2"),
        empty_reply=ATOM.format(entries=""),
        too_many_requests=Refusal("Rate exceeded.", 429),
    ),
}
