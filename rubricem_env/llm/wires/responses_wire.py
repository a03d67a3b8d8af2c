"""The wire of OpenAI's responses."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pydantic import SecretStr

from rubricem_env.llm.chat import ChatReply, ChatRequest, Delta, Finish
from rubricem_env.llm.usage import Usage
from rubricem_env.llm.wires.wire import (
    Message,
    bearer,
    broken_stream,
    count_of,
    events_of,
    raise_reported,
    refuse_bare_end,
    text_of,
)


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
            "reasoning": {"effort": request.effort} if request.effort else None,
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
                yield Delta(text_of(event.get("delta")))
            elif kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
                has_thought = True
                yield Delta(thought=text_of(event.get("delta")))
            elif kind == "response.refusal.delta":
                yield Delta(finish="blocked")
            elif kind in ("error", "response.failed"):
                error = event.get("error") or (event.get("response") or {}).get("error") or event
                raise_reported(error, "aborted the stream")
            elif kind in ("response.completed", "response.incomplete"):
                whole = event.get("response") or {}
                finish = _responses_finish(whole)
                refuse_bare_end(finish, has_text=has_text, has_thought=has_thought)
                yield Delta("", _responses_usage(whole.get("usage")), finish)
                return
        raise broken_stream()


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
        input_tokens=count_of(counted.get("input_tokens")),
        cached_tokens=count_of((counted.get("input_tokens_details") or {}).get("cached_tokens")),
        output_tokens=count_of(counted.get("output_tokens")),
        reasoning_tokens=count_of((counted.get("output_tokens_details") or {}).get("reasoning_tokens")),
    )
