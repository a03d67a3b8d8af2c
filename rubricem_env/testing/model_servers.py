"""Fake model servers for loopback tests: the Gemini REST API and OpenAI's chat completions, as plain ASGI apps.

Serve one with `serve_loopback(FakeGemini(answer))`; the real clients talk to it and notice nothing.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, NamedTuple

from rubricem_env.testing.asgi import Receive, Send, live, read_body

_NO_HEADERS: Mapping[str, str] = {}


class Asked(NamedTuple):
    """One request as the server understood it."""

    model: str
    system: str
    prompt: str
    schema: Mapping[str, Any] | None
    key: str
    """The API key that came along; empty where none did."""
    body: Mapping[str, Any]


class Answered(NamedTuple):
    """What the server says: a model's text, or any status and body in its place."""

    text: str = ""
    finish: str = "stop"
    """`stop`, `length` or `blocked`."""
    status: int = 200
    headers: Mapping[str, str] = _NO_HEADERS
    raw: bytes | None = None
    """Sent as it is in place of a well-formed body."""
    delay: float = 0.0
    """Seconds before the answer."""


Answer = Callable[[Asked], Answered | str | Awaitable[Answered | str]]
"""What to say to a request, at once or after a while of work."""


class _FakeServer:
    """What both fakes share: reading a request, keeping it, and sending an answer."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.asked: list[Asked] = []

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await live(receive, send)
            return
        asked = self._read(scope, json.loads(await read_body(receive)))
        self.asked.append(asked)
        said = self._answer(asked)
        if isinstance(said, Awaitable):
            said = await said
        answered = Answered(said) if isinstance(said, str) else said
        if answered.delay:
            await asyncio.sleep(answered.delay)
        await _send(send, answered, self._write(asked, answered) if answered.raw is None else answered.raw)

    def _read(self, scope: MutableMapping[str, Any], body: dict[str, Any]) -> Asked:
        raise NotImplementedError

    def _write(self, asked: Asked, answered: Answered) -> bytes:
        raise NotImplementedError


class FakeGemini(_FakeServer):
    """`POST /v1*/models/{model}:generateContent`."""

    def _read(self, scope: MutableMapping[str, Any], body: dict[str, Any]) -> Asked:
        config = body.get("generationConfig", {})
        return Asked(
            model=scope["path"].rpartition("/")[2].partition(":")[0],
            system=_join_parts(body.get("systemInstruction", {})),
            prompt="".join(_join_parts(content) for content in body["contents"]),
            schema=config.get("responseSchema") or config.get("responseJsonSchema"),
            key=_header(scope, b"x-goog-api-key"),
            body=body,
        )

    def _write(self, asked: Asked, answered: Answered) -> bytes:
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
    """`POST .../chat/completions`; the answer has every field that the API promises, for clients that insist."""

    def _read(self, scope: MutableMapping[str, Any], body: dict[str, Any]) -> Asked:
        texts = {
            role: "".join(m["content"] for m in body["messages"] if m["role"] == role) for role in ("system", "user")
        }
        return Asked(
            model=body["model"],
            system=texts["system"],
            prompt=texts["user"],
            schema=body.get("response_format", {}).get("json_schema", {}).get("schema"),
            key=_header(scope, b"authorization").removeprefix("Bearer "),
            body=body,
        )

    def _write(self, asked: Asked, answered: Answered) -> bytes:
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


async def _send(send: Send, answered: Answered, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), *((k.encode(), v.encode()) for k, v in answered.headers.items())]
    await send({"type": "http.response.start", "status": answered.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
