"""A fake server of models for loopback tests, as an ASGI app.

Serve one with `serve_loopback(ModelServer(answer))`; the real clients work with it unchanged.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route


def event_stream(events: Iterable[str], *, stays_open: bool = False) -> StreamingResponse:
    """Server-sent events; a stream that stays open has to be closed by its client."""

    async def lines() -> AsyncIterator[str]:
        for event in events:
            yield f"data: {event}\n\n"
        if stays_open:
            await asyncio.Event().wait()

    return StreamingResponse(lines(), media_type="text/event-stream")


class ModelRequest(NamedTuple):
    """One request as the server read it."""

    model: str = ""
    system: str = ""
    prompt: str = ""
    schema: Mapping[str, Any] | None = None
    key: str = ""
    """The API key of the request; empty if it has none."""
    body: Mapping[str, Any] = {}
    path: str = ""


class ModelReply(NamedTuple):
    """The server's reply: a model's text, whole or as a stream as the request asks, or any other status and body."""

    text: str = ""
    finish: str = "stop"
    """`stop`, `length` or `content_filter`."""
    status: int = 200
    headers: Mapping[str, str] = {}
    raw: bytes | None = None
    """Sent unchanged instead of a well-formed body."""
    delay: float = 0.0
    """How many seconds pass before the answer."""
    stop_reason: str | None = None
    """The stop string that ended the stream. It is for streams, as all fields below."""
    usage: tuple[int, int] | None = (10, 5)
    """Tokens read and written, as reported with the last chunk; None reports nothing."""
    piece: int = 7
    """The characters of one chunk."""
    breaks_off: bool = False
    """The stream ends without its end mark."""
    hangs: bool = False
    """The stream never ends: the client has to close it."""


Answer = Callable[[ModelRequest], ModelReply | str | Awaitable[ModelReply | str]]
"""Returns the reply to a request, directly or as an awaitable."""


class ModelServer(Starlette):
    """OpenAI's completions and chat completions, vLLM's tokenizer, and Gemini's REST API, as one ASGI app.

    `models` is the list of GET models, by name and owner.
    """

    def __init__(self, answer: Answer, *, models: Mapping[str, str] | None = None) -> None:
        super().__init__(routes=[Route("/{path:path}", self._respond, methods=["GET", "POST"])])
        self._answer = answer
        self._models = {} if models is None else models
        self.asked: list[ModelRequest] = []
        """The requests for text."""
        self.loading = 0
        """The number of further GET models requests that get status 503."""

    async def _respond(self, asked: Request) -> Response:
        content = await asked.body()
        path = asked.url.path
        body = json.loads(content) if content else {}
        if path.endswith("/models") and self.loading:
            self.loading -= 1
            return JSONResponse({"error": {"message": "loading", "code": 503}}, 503)
        if path.endswith("/models"):
            listed = [{"id": name, "owned_by": owner} for name, owner in self._models.items()]
            return JSONResponse({"object": "list", "data": listed})
        if path == "/tokenize":
            rendered = "".join(f"[{m['role']}]{m['content']}" for m in body["messages"]) + "[assistant]"
            return JSONResponse({"tokens": list(rendered.encode())})
        if path == "/detokenize":
            return JSONResponse({"prompt": bytes(body["tokens"]).decode()})
        is_gemini = "enerateContent" in path
        request = _read_gemini(asked, body) if is_gemini else _read_openai(asked, body)
        self.asked.append(request)
        answer = self._answer(request)
        if isinstance(answer, Awaitable):
            answer = await answer
        reply = ModelReply(answer) if isinstance(answer, str) else answer
        await asyncio.sleep(reply.delay)
        if reply.raw is not None:
            return Response(reply.raw, reply.status, {"content-type": "application/json", **reply.headers})
        if reply.status != 200:
            error = {"code": reply.status, "message": reply.text or "no", "status": "FAKE"}
            return JSONResponse({"error": error}, reply.status, reply.headers)
        if body.get("stream") or "streamGenerate" in path:
            return _stream(reply, _gemini_event if is_gemini else _openai_event)
        whole = _gemini_reply(request, reply) if is_gemini else _openai_reply(request, reply, len(self.asked))
        return JSONResponse(whole, headers=reply.headers)


def _stream(reply: ModelReply, event: Callable[..., Mapping[str, Any]]) -> Response:
    pieces = [reply.text[at : at + reply.piece] for at in range(0, len(reply.text), reply.piece)]
    events = [json.dumps(event(reply, piece)) for piece in pieces]
    if not (reply.hangs or reply.breaks_off):
        events.append(json.dumps(event(reply, "", is_last=True)))
        events += ["[DONE]"] if event is _openai_event else []
    return event_stream(events, stays_open=reply.hangs)


def _read_openai(request: Request, body: dict[str, Any]) -> ModelRequest:
    texts = {
        role: "".join(m["content"] for m in body.get("messages", ()) if m["role"] == role)
        for role in ("system", "user")
    }
    return ModelRequest(
        model=body.get("model", ""),
        system=texts["system"],
        prompt=texts["user"],
        schema=body.get("response_format", {}).get("json_schema", {}).get("schema"),
        key=request.headers.get("authorization", "").removeprefix("Bearer "),
        body=body,
        path=request.url.path,
    )


def _read_gemini(request: Request, body: dict[str, Any]) -> ModelRequest:
    config = body.get("generationConfig", {})
    return ModelRequest(
        model=request.url.path.rpartition("/")[2].partition(":")[0],
        system=_join_parts(body.get("systemInstruction", {})),
        prompt="".join(_join_parts(content) for content in body["contents"]),
        schema=config.get("responseSchema") or config.get("responseJsonSchema"),
        key=request.headers.get("x-goog-api-key", ""),
        body=body,
        path=request.url.path,
    )


def _openai_reply(request: ModelRequest, reply: ModelReply, number: int) -> dict[str, Any]:
    """Every field of the API, for strict clients."""
    message = {"role": "assistant", "content": reply.text}
    read = len(request.system + request.prompt) // 4
    wrote = len(reply.text) // 4
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 0,
        "model": request.model,
        "choices": [{"index": 0, "message": message, "finish_reason": reply.finish}],
        "usage": {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote},
    }


def _gemini_reply(request: ModelRequest, reply: ModelReply) -> dict[str, Any]:
    counted = {
        "promptTokenCount": len(request.system + request.prompt) // 4,
        "candidatesTokenCount": len(reply.text) // 4,
        "thoughtsTokenCount": 7,
    }
    whole: dict[str, Any] = {"modelVersion": request.model, "usageMetadata": counted}
    if reply.finish == "content_filter":
        return {**whole, "promptFeedback": {"blockReason": "SAFETY"}}
    content = {"role": "model", "parts": [{"text": reply.text}]}
    return {**whole, "candidates": [{"content": content, "finishReason": _REASONS[reply.finish], "index": 0}]}


_REASONS = {"stop": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}


def _openai_event(reply: ModelReply, piece: str, *, is_last: bool = False) -> Mapping[str, Any]:
    """One chunk, for the chat and the completions endpoint alike."""
    choice: dict[str, Any] = {"delta": {"content": piece}, "text": piece}
    if not is_last:
        return {"choices": [choice]}
    choice |= {"finish_reason": reply.finish, "stop_reason": reply.stop_reason}
    usage = {"prompt_tokens": reply.usage[0], "completion_tokens": reply.usage[1]} if reply.usage else None
    return {"choices": [choice], **({"usage": usage} if usage else {})}


def _gemini_event(reply: ModelReply, piece: str, *, is_last: bool = False) -> Mapping[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": [{"text": piece}]}, "index": 0}
    if not is_last:
        return {"candidates": [candidate]}
    candidate["finishReason"] = _REASONS[reply.finish]
    usage = {"promptTokenCount": reply.usage[0], "candidatesTokenCount": reply.usage[1]} if reply.usage else None
    return {"candidates": [candidate], **({"usageMetadata": usage} if usage else {})}


def _join_parts(content: Mapping[str, Any]) -> str:
    return "".join(part.get("text", "") for part in content.get("parts", ()))
