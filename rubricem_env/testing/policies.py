"""Fakes for users of a policy: writers of given turns, and model servers that stream."""

import json
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

from rubricem_env.testing.servers import ModelRequest, Receive, Send, live, read_body


class ListWriter:
    """Writes given turns, then repeats the last one, and records what it reads."""

    def __init__(self, turns: Sequence[str]) -> None:
        self._turns = tuple(turns)
        self.read: list[str] = []

    def emission(self, observation: str) -> str:
        """The next of the turns."""
        self.read.append(observation)
        return self._turns[min(len(self.read), len(self._turns)) - 1]


def writes(*turns: str) -> Callable[[object, int], ListWriter]:
    """For `ScriptedPolicy`: each episode writes the same turns."""
    return lambda opening, seed: ListWriter(turns)


class Streamed(NamedTuple):
    """A server's reply to one request."""

    text: str = ""
    finish: str = "stop"
    stop_reason: str | None = None
    status: int = 200
    breaks_off: bool = False
    """The stream ends without its end mark."""
    usage: tuple[int, int] | None = (10, 5)
    """Tokens read and written, as reported with the last chunk; None reports nothing."""
    piece: int = 7
    """Characters of one chunk."""
    hangs: bool = False
    """The stream never ends: the client has to close it."""


class StreamingServer:
    """OpenAI's completions and chat completions, vLLM's tokenizer, and Gemini's streams, as one ASGI app.

    `answer` returns the reply to each streaming request; `models` is the list of GET models, by name and owner.
    """

    def __init__(self, answer: Callable[[ModelRequest], Streamed], *, models: Mapping[str, str] | None = None) -> None:
        self._answer = answer
        self._models = {} if models is None else models
        self.asked: list[ModelRequest] = []
        self.loading = 0
        """The number of further GET models requests that get status 503."""
        self.was_left = False
        """A client closed the connection before the stream was over."""

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await live(receive, send)
            return
        body = await read_body(receive)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        key = headers.get("authorization", "").removeprefix("Bearer ") or headers.get("x-goog-api-key", "")
        request = ModelRequest(path=scope["path"], body=json.loads(body) if body else {}, key=key)
        if request.path.endswith("/models") and self.loading:
            self.loading -= 1
            await _send_json(send, 503, content={"error": {"message": "loading", "code": 503}})
        elif request.path.endswith("/models"):
            listed = [{"id": name, "owned_by": owner} for name, owner in self._models.items()]
            await _send_json(send, 200, content={"object": "list", "data": listed})
        elif request.path == "/tokenize":
            rendered = "".join(f"[{m['role']}]{m['content']}" for m in request.body["messages"]) + "[assistant]"
            await _send_json(send, 200, content={"tokens": list(rendered.encode())})
        elif request.path == "/detokenize":
            await _send_json(send, 200, content={"prompt": bytes(request.body["tokens"]).decode()})
        else:
            self.asked.append(request)
            await self._stream(request, receive, send=send)

    async def _stream(self, request: ModelRequest, receive: Receive, *, send: Send) -> None:
        streamed = self._answer(request)
        if streamed.status != 200:
            await _send_json(
                send, streamed.status, content={"error": {"message": streamed.text, "code": streamed.status}}
            )
            return
        start = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
        await send(start)
        for event in _events(request.path, streamed):
            await send({"type": "http.response.body", "body": f"data: {event}\n\n".encode(), "more_body": True})
        if streamed.hangs:
            while (await receive())["type"] != "http.disconnect":
                pass
            self.was_left = True
            return
        await send({"type": "http.response.body", "body": b""})


def _events(path: str, streamed: Streamed) -> list[str]:
    pieces = [streamed.text[at : at + streamed.piece] for at in range(0, len(streamed.text), streamed.piece)]
    events = [_event(path, piece, streamed=streamed, is_last=False) for piece in pieces]
    if streamed.hangs or streamed.breaks_off:
        return events
    events.append(_event(path, "", streamed=streamed, is_last=True))
    return events if "Generate" in path else [*events, "[DONE]"]


def _event(path: str, piece: str, *, streamed: Streamed, is_last: bool) -> str:
    usage = streamed.usage if is_last else None
    if "Generate" in path:
        reason = {"stop": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}[streamed.finish]
        candidate = {"content": {"role": "model", "parts": [{"text": piece}]}, "index": 0}
        counted = {"usageMetadata": {"promptTokenCount": usage[0], "candidatesTokenCount": usage[1]}} if usage else {}
        return json.dumps({"candidates": [candidate | ({"finishReason": reason} if is_last else {})], **counted})
    finish = {"finish_reason": streamed.finish, "stop_reason": streamed.stop_reason} if is_last else {}
    choice = {"delta": {"content": piece}} if "chat" in path else {"text": piece}
    counted = {"usage": {"prompt_tokens": usage[0], "completion_tokens": usage[1]}} if usage else {}
    return json.dumps({"choices": [{**choice, **finish}], **counted})


async def _send_json(send: Send, status: int, *, content: Mapping[str, Any]) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(content).encode()})
