"""OpenAI's responses and Anthropic's messages: how each writes a chat, and how its replies and streams are read.

`OpenAICompatibleModel` sends them; the wire of chat completions stands beside it.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, Protocol

from pydantic import SecretStr

from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.chat import ChatReply, ChatRequest, Delta, Finish
from rubricem_env.llm.http_failures import WEB_PAGE, is_web_page
from rubricem_env.llm.usage import Usage

Message = tuple[Literal["user", "assistant"], str]


class Wire(Protocol):
    """One API for chats."""

    path: str
    limit_name: str
    """The parameter for the most tokens of a reply."""
    when_streamed: Mapping[str, Any]
    """What a request for a stream has beside that."""

    def headers(self, key: SecretStr | None) -> dict[str, str]:
        """The headers of every request."""
        ...

    def body(self, request: ChatRequest, messages: Sequence[Message]) -> dict[str, Any]:
        """The request with these messages in place of its prompt, without the model's name and the limit."""
        ...

    def read(self, content: Any) -> ChatReply:
        """A whole reply.

        Raises:
            ModelError: it reports an error.
            ValueError, TypeError, KeyError: it is no reply of this API.
        """
        ...

    def read_stream(self, lines: AsyncIterator[str]) -> AsyncGenerator[Delta, None]:
        """The deltas of a server-sent stream up to its end mark; raises ModelError where it fails or breaks off."""
        ...


def bearer(key: SecretStr | None) -> dict[str, str]:
    """OpenAI's header for a key."""
    return {"authorization": f"Bearer {key.get_secret_value()}"} if key else {}


async def events_of(lines: AsyncIterator[str]) -> AsyncGenerator[dict[str, Any] | None, None]:
    """The JSON events of a server-sent stream; None is the end mark `[DONE]`.

    Raises:
        ModelError: an event is no JSON object, or a web page is sent.
    """
    async for line in lines:
        if is_web_page(line):
            raise ModelError(f"the server answered with {WEB_PAGE}", is_retryable=True)
        if not line.startswith("data:"):
            continue
        content = line.removeprefix("data:").strip()
        if content == "[DONE]":
            yield None
            continue
        try:
            event = json.loads(content)
        except (ValueError, RecursionError) as failure:
            raise ModelError("the server streamed an event that is not JSON", is_retryable=True) from failure
        if not isinstance(event, dict):
            raise ModelError("the server streamed an event that is no object", is_retryable=True)
        yield event


def raise_reported(error: Any, action: str) -> None:
    """Raise ModelError where a reply holds an error."""
    if error is not None:
        message = error.get("message") or "no message" if isinstance(error, dict) else error
        raise ModelError(f"the server {action}: {str(message)[:500]}", is_retryable=True)


def _broken() -> ModelError:
    return ModelError("the stream ended before its end mark", is_retryable=True)


class ResponsesWire:
    """OpenAI's Responses API. Nothing is stored at the server."""

    path = "responses"
    limit_name = "max_output_tokens"
    when_streamed: Mapping[str, Any] = MappingProxyType({})

    def headers(self, key: SecretStr | None) -> dict[str, str]:
        return bearer(key)

    def body(self, request: ChatRequest, messages: Sequence[Message]) -> dict[str, Any]:
        body: dict[str, Any] = {
            "input": [{"role": role, "content": text} for role, text in messages],
            "instructions": request.system or None,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "store": False,
        }
        if request.schema is not None:
            shape = {"name": request.schema.__name__, "strict": True, "schema": request.schema.model_json_schema()}
            body["text"] = {"format": {"type": "json_schema", **shape}}
        return {name: value for name, value in body.items() if value is not None}

    def read(self, content: Any) -> ChatReply:
        raise_reported(content.get("error"), "answered with an error")
        parts = [
            part for item in content["output"] if item.get("type") == "message" for part in item.get("content") or ()
        ]
        refused = any(part.get("type") == "refusal" for part in parts)
        thoughts = [
            part.get("text") or ""
            for item in content["output"]
            if item.get("type") == "reasoning"
            for part in item.get("summary") or ()
        ]
        return ChatReply(
            text="".join(part["text"] for part in parts if part.get("type") == "output_text"),
            model=content.get("model") or "",
            usage=_responses_usage(content.get("usage")) or Usage(calls=1),
            finish="blocked" if refused else _responses_finish(content),
            thought="\n".join(thoughts),
        )

    async def read_stream(self, lines: AsyncIterator[str]) -> AsyncGenerator[Delta, None]:
        has_text = has_thought = False
        async for event in events_of(lines):
            if event is None:
                break
            kind = event.get("type")
            if kind == "response.output_text.delta":
                has_text = True
                yield Delta(_text_of(event.get("delta")))
            elif kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
                has_thought = True
                yield Delta(thought=_text_of(event.get("delta")))
            elif kind == "response.refusal.delta":
                yield Delta(finish="blocked")
            elif kind in ("error", "response.failed"):
                error = event.get("error") or (event.get("response") or {}).get("error") or event
                raise_reported(error, "aborted the stream")
            elif kind in ("response.completed", "response.incomplete"):
                whole = event.get("response") or {}
                finish = _responses_finish(whole)
                _refuse_bare_end(finish, has_text=has_text, has_thought=has_thought)
                yield Delta("", _responses_usage(whole.get("usage")), finish)
                return
        raise _broken()


def _responses_finish(reply: Mapping[str, Any]) -> Finish:
    if reply.get("status") == "completed":
        return "stop"
    reason = (reply.get("incomplete_details") or {}).get("reason")
    reasons: Mapping[Any, Finish] = {"max_output_tokens": "length", "content_filter": "blocked"}
    return reasons.get(reason, "other")


def _responses_usage(counted: Mapping[str, Any] | None) -> Usage | None:
    if counted is None:
        return None
    return Usage(
        calls=1,
        input_tokens=_count(counted.get("input_tokens")),
        cached_tokens=_count((counted.get("input_tokens_details") or {}).get("cached_tokens")),
        output_tokens=_count(counted.get("output_tokens")),
        reasoning_tokens=_count((counted.get("output_tokens_details") or {}).get("reasoning_tokens")),
    )


class MessagesWire:
    """Anthropic's Messages API. It takes no seed and no shape of the reply; replies are validated as any are."""

    path = "messages"
    limit_name = "max_tokens"
    when_streamed: Mapping[str, Any] = MappingProxyType({})

    def headers(self, key: SecretStr | None) -> dict[str, str]:
        return {"anthropic-version": "2023-06-01", **({"x-api-key": key.get_secret_value()} if key else {})}

    def body(self, request: ChatRequest, messages: Sequence[Message]) -> dict[str, Any]:
        body: dict[str, Any] = {
            "system": request.system or None,
            "messages": [{"role": role, "content": text} for role, text in messages],
            # It takes temperatures up to 1, and one of the two alone where a nucleus is asked for.
            "temperature": None if request.temperature is None else min(request.temperature, 1.0),
            "top_p": request.top_p,
        }
        return {name: value for name, value in body.items() if value is not None}

    def read(self, content: Any) -> ChatReply:
        raise_reported(content.get("error"), "answered with an error")
        blocks = content["content"]
        return ChatReply(
            text="".join(block["text"] for block in blocks if block.get("type") == "text"),
            model=content.get("model") or "",
            usage=_messages_usage(content.get("usage") or {}),
            finish=_messages_finish(content.get("stop_reason")) or "other",
            thought="".join(block.get("thinking") or "" for block in blocks if block.get("type") == "thinking"),
        )

    async def read_stream(self, lines: AsyncIterator[str]) -> AsyncGenerator[Delta, None]:
        counted: dict[str, Any] = {}
        finish: Finish | None = None
        has_text = has_thought = False
        async for event in events_of(lines):
            kind = (event or {}).get("type")
            if event is None or kind == "message_stop":
                if finish is None:
                    break
                _refuse_bare_end(finish, has_text=has_text, has_thought=has_thought)
                yield Delta("", _messages_usage(counted), finish)
                return
            if kind == "error":
                raise_reported(event.get("error") or {}, "aborted the stream")
            if kind == "message_start":
                counted |= (event.get("message") or {}).get("usage") or {}
            elif kind == "message_delta":
                counted |= {name: value for name, value in (event.get("usage") or {}).items() if value is not None}
                finish = _messages_finish((event.get("delta") or {}).get("stop_reason")) or finish
            elif kind == "content_block_delta":
                delta = event.get("delta") or {}
                text, thought = _text_of(delta.get("text")), _text_of(delta.get("thinking"))
                has_text, has_thought = has_text or bool(text), has_thought or bool(thought)
                yield Delta(text, thought=thought)
        raise _broken()


def _messages_finish(reason: Any) -> Finish | None:
    reasons: Mapping[str, Finish] = {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "refusal": "blocked",
    }
    return reasons.get(reason, "other") if reason else None


def _messages_usage(counted: Mapping[str, Any]) -> Usage:
    """Anthropic counts what it read from its cache, and what it wrote there, beside the input."""
    cached = _count(counted.get("cache_read_input_tokens"))
    written = _count(counted.get("cache_creation_input_tokens"))
    return Usage(
        calls=1,
        input_tokens=_count(counted.get("input_tokens")) + cached + written,
        cached_tokens=cached,
        output_tokens=_count(counted.get("output_tokens")),
    )


def _refuse_bare_end(finish: Finish, *, has_text: bool, has_thought: bool) -> None:
    if finish == "other":
        raise ModelError("the server ended the reply before the model did", is_retryable=True)
    if finish in ("stop", "length") and not has_text:
        said = "a thought and no text" if has_thought else "no text"
        raise ModelError(f"the server streamed {said}", is_retryable=True)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""
