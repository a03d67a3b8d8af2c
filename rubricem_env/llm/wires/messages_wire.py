"""The wire of Anthropic's messages."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pydantic import SecretStr

from rubricem_env.llm.chat import ChatReply, ChatRequest, Delta, Finish
from rubricem_env.llm.usage import Usage
from rubricem_env.llm.wires.wire import (
    Message,
    broken_stream,
    count_of,
    events_of,
    raise_reported,
    refuse_bare_end,
    text_of,
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
                refuse_bare_end(finish, has_text=has_text, has_thought=has_thought)
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
                text = text_of(delta.get("text"))
                thought = text_of(delta.get("thinking"))
                has_text = has_text or bool(text)
                has_thought = has_thought or bool(thought)
                yield Delta(text, thought=thought)
        raise broken_stream()


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
    cached = count_of(counted.get("cache_read_input_tokens"))
    written = count_of(counted.get("cache_creation_input_tokens"))
    return Usage(
        calls=1,
        input_tokens=count_of(counted.get("input_tokens")) + cached + written,
        cached_tokens=cached,
        output_tokens=count_of(counted.get("output_tokens")),
    )
