"""Fake servers for loopback tests, as ASGI apps: search engines, the Gemini REST API, and OpenAI's chat completions.

Serve one with `serve_loopback(FakeGemini(answer))`; the real clients work with it unchanged.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


async def read_body(receive: Receive) -> bytes:
    """The whole body of a request."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


async def live(receive: Receive, send: Send) -> None:
    """Answer the start and the stop of the server."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


_BLOCK = b" " * 1_000_000


class SearchReply(NamedTuple):
    """One scripted answer."""

    body: Any = None
    """JSON, or text if `media_type` is another type."""
    status: int = 200
    headers: Mapping[str, str] = {}
    delay: float = 0.0
    """Seconds before the first byte."""
    media_type: str = "application/json"
    endless: bool = False
    """A body of 500 MB instead."""


class SearchServer:
    """Answers the nth request with the nth reply, then repeats the last one, and records the requests."""

    def __init__(self, *replies: SearchReply) -> None:
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


def _respond(reply: SearchReply) -> Response:
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
    """A reply of Gemini with grounding: sources are (title, URL); spans are (words, index of their source)."""
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
    """A reply of Semantic Scholar's snippet endpoint."""
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


_NO_HEADERS: Mapping[str, str] = {}


class ModelRequest(NamedTuple):
    """One request as the server read it; `StreamingServer` reads the path, the key and the body only."""

    model: str = ""
    system: str = ""
    prompt: str = ""
    schema: Mapping[str, Any] | None = None
    key: str = ""
    """The API key of the request; empty if it has none."""
    body: Mapping[str, Any] = {}
    path: str = ""


class ModelReply(NamedTuple):
    """The server's reply: a model's text, or any other status and body."""

    text: str = ""
    finish: str = "stop"
    """`stop`, `length` or `blocked`."""
    status: int = 200
    headers: Mapping[str, str] = _NO_HEADERS
    raw: bytes | None = None
    """Sent unchanged instead of a well-formed body."""
    delay: float = 0.0
    """Seconds before the answer."""


Answer = Callable[[ModelRequest], ModelReply | str | Awaitable[ModelReply | str]]
"""Returns the reply to a request, directly or as an awaitable."""


class _FakeServer:
    """Reads a request, records it, and sends the reply; subclasses know the format."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.asked: list[ModelRequest] = []

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await live(receive, send)
            return
        asked = self._read(scope, json.loads(await read_body(receive)))
        self.asked.append(asked)
        said = self._answer(asked)
        if isinstance(said, Awaitable):
            said = await said
        answered = ModelReply(said) if isinstance(said, str) else said
        if answered.delay:
            await asyncio.sleep(answered.delay)
        await _send(send, answered, self._write(asked, answered) if answered.raw is None else answered.raw)

    def _read(self, scope: MutableMapping[str, Any], body: dict[str, Any]) -> ModelRequest:
        raise NotImplementedError

    def _write(self, asked: ModelRequest, answered: ModelReply) -> bytes:
        raise NotImplementedError


class FakeGemini(_FakeServer):
    """`POST /v1*/models/{model}:generateContent`."""

    def _read(self, scope: MutableMapping[str, Any], body: dict[str, Any]) -> ModelRequest:
        config = body.get("generationConfig", {})
        return ModelRequest(
            model=scope["path"].rpartition("/")[2].partition(":")[0],
            system=_join_parts(body.get("systemInstruction", {})),
            prompt="".join(_join_parts(content) for content in body["contents"]),
            schema=config.get("responseSchema") or config.get("responseJsonSchema"),
            key=_header(scope, b"x-goog-api-key"),
            body=body,
        )

    def _write(self, asked: ModelRequest, answered: ModelReply) -> bytes:
        if answered.status != 200:
            error = {"code": answered.status, "message": answered.text or "no", "status": "FAKE"}
            return json.dumps({"error": error}).encode()
        reply: dict[str, Any] = {
            "modelVersion": asked.model,
            "usageMetadata": {
                "promptTokenCount": len(asked.system + asked.prompt) // 4,
                "candidatesTokenCount": len(answered.text) // 4,
                "thoughtsTokenCount": 7,
            },
        }
        if answered.finish == "blocked":
            return json.dumps({**reply, "promptFeedback": {"blockReason": "SAFETY"}}).encode()
        reason = {"stop": "STOP", "length": "MAX_TOKENS"}[answered.finish]
        content = {"role": "model", "parts": [{"text": answered.text}]}
        return json.dumps({**reply, "candidates": [{"content": content, "finishReason": reason, "index": 0}]}).encode()


class FakeOpenAI(_FakeServer):
    """`POST .../chat/completions`; the reply has every field of the API, for strict clients."""

    def _read(self, scope: MutableMapping[str, Any], body: dict[str, Any]) -> ModelRequest:
        texts = {
            role: "".join(m["content"] for m in body["messages"] if m["role"] == role) for role in ("system", "user")
        }
        return ModelRequest(
            model=body["model"],
            system=texts["system"],
            prompt=texts["user"],
            schema=body.get("response_format", {}).get("json_schema", {}).get("schema"),
            key=_header(scope, b"authorization").removeprefix("Bearer "),
            body=body,
        )

    def _write(self, asked: ModelRequest, answered: ModelReply) -> bytes:
        if answered.status != 200:
            return json.dumps({"error": {"message": answered.text or "no"}}).encode()
        finish = {"stop": "stop", "length": "length", "blocked": "content_filter"}[answered.finish]
        message = {"role": "assistant", "content": answered.text}
        read, wrote = len(asked.system + asked.prompt) // 4, len(answered.text) // 4
        reply = {
            "id": f"chatcmpl-{len(self.asked)}",
            "object": "chat.completion",
            "created": 0,
            "model": asked.model,
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote},
        }
        return json.dumps(reply).encode()


def _join_parts(content: Mapping[str, Any]) -> str:
    return "".join(part.get("text", "") for part in content.get("parts", ()))


def _header(scope: MutableMapping[str, Any], name: bytes) -> str:
    return next((value.decode() for key, value in scope["headers"] if key == name), "")


async def _send(send: Send, answered: ModelReply, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), *((k.encode(), v.encode()) for k, v in answered.headers.items())]
    await send({"type": "http.response.start", "status": answered.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
