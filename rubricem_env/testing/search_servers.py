"""Search engines that never were, as ASGI apps: they speak the real ones' formats and fail on command."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

_BLOCK = b" " * 1_000_000


class Reply(NamedTuple):
    """One scripted answer."""

    body: Any = None
    """JSON, or text where `media_type` says so."""
    status: int = 200
    headers: Mapping[str, str] = {}
    delay: float = 0.0
    """Seconds before the first byte."""
    media_type: str = "application/json"
    endless: bool = False
    """A body of 500 MB instead."""


class SearchServer:
    """Answers every request alike, or the n-th with the n-th reply, the last one for ever; keeps what it was asked."""

    def __init__(self, *replies: Reply) -> None:
        self._replies = replies
        self.requests: list[dict[str, Any]] = []

    @property
    def app(self) -> Starlette:
        return Starlette(routes=[Route("/{path:path}", self._answer, methods=["GET", "POST"])])

    async def _answer(self, request: Request) -> Response:
        reply = self._replies[min(len(self.requests), len(self._replies) - 1)]
        body = await request.body()
        self.requests.append(
            {
                "path": request.url.path,
                "query": dict(request.query_params),
                "headers": dict(request.headers),
                "json": json.loads(body) if body else None,
            }
        )
        await asyncio.sleep(reply.delay)
        return _respond(reply)


def _respond(reply: Reply) -> Response:
    if reply.endless:
        return StreamingResponse(_five_hundred_megabytes(), media_type=reply.media_type)
    if reply.media_type == "application/json":
        return JSONResponse(reply.body, reply.status, reply.headers)
    return Response(reply.body, reply.status, reply.headers, reply.media_type)


async def _five_hundred_megabytes() -> AsyncIterator[bytes]:
    for _ in range(500):
        yield _BLOCK


def grounded_reply(
    answer: str, sources: tuple[tuple[str, str], ...] = (), spans: tuple[tuple[str, int], ...] = ()
) -> dict[str, Any]:
    """What Gemini answers with grounding: sources are (title, URL), spans say which words which source supports."""
    encoded = answer.encode()
    supports = [
        {
            "segment": {
                "startIndex": encoded.index(words.encode()),
                "endIndex": encoded.index(words.encode()) + len(words.encode()),
                "text": words,
            },
            "groundingChunkIndices": [index],
        }
        for words, index in spans
    ]
    chunks = [{"web": {"uri": url, "title": title}} for title, url in sources]
    candidate = {
        "content": {"role": "model", "parts": [{"text": answer}]},
        "finishReason": "STOP",
        "groundingMetadata": {"groundingChunks": chunks, "groundingSupports": supports},
    }
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 20, "totalTokenCount": 30}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-3-flash"}


def scholar_reply(*texts: str) -> dict[str, Any]:
    """What Semantic Scholar's snippet endpoint answers."""
    hits = [
        {
            "snippet": {"text": text, "snippetKind": "body"},
            "score": 1.0,
            "paper": {"corpusId": str(n), "title": f"Paper {n}"},
        }
        for n, text in enumerate(texts, 1)
    ]
    return {"data": hits, "retrievalVersion": "test"}


def pages_app(pages: dict[str, Callable[[], Response]]) -> Starlette:
    """A web site: a response for each path."""

    def route(path: str, respond: Callable[[], Response]) -> Route:
        async def endpoint(_: Request) -> Response:
            return respond()

        return Route(path, endpoint)

    return Starlette(routes=[route(path, respond) for path, respond in pages.items()])
