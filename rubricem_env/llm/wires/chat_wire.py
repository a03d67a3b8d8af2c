"""The wire of OpenAI's chat completions, which most servers speak."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pydantic import SecretStr, ValidationError

from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.chat import ChatReply, ChatRequest, Delta
from rubricem_env.llm.usage import Usage
from rubricem_env.llm.wires.openai_reply import WireReply, read_completion
from rubricem_env.llm.wires.wire import Message, bearer, events_of, raise_reported

DROPPED = "the server ended the stream before the model did"
"""Begins the failure of a stream that ends in good order and without the reason that others of its server have."""


class ChatWire:
    """OpenAI's chat completions, which most servers speak. Streams of one server share a wire."""

    path = "chat/completions"
    limit_name = "max_tokens"
    when_streamed: Mapping[str, Any] = MappingProxyType({"stream_options": {"include_usage": True}})

    def __init__(self) -> None:
        self._gives_reasons = False
        """Whether a stream of this server has said why it ended."""

    def headers(self, key: SecretStr | None) -> dict[str, str]:
        return bearer(key)

    def body(self, request: ChatRequest, messages: Sequence[Message]) -> dict[str, Any]:
        system = [{"role": "system", "content": request.system}] if request.system else []
        body: dict[str, Any] = {
            "messages": [*system, *({"role": role, "content": text} for role, text in messages)],
            "temperature": request.temperature,
            "top_p": request.top_p,
            "seed": request.seed,
            "reasoning_effort": request.effort or None,
        }
        if request.schema is not None:
            shape = {"name": request.schema.__name__, "strict": True, "schema": request.schema.model_json_schema()}
            body["response_format"] = {"type": "json_schema", "json_schema": shape}
        return {name: value for name, value in body.items() if value is not None}

    def read(self, content: Any) -> ChatReply:
        reply = read_completion(content)
        return ChatReply(
            text=reply.text or "",
            model=reply.model or "",
            usage=reply.usage or Usage(calls=1),
            finish=reply.finish or "stop",
            thought=reply.thought if isinstance(reply.thought, str) else "",
        )

    async def read_stream(self, lines: AsyncIterator[str]) -> AsyncGenerator[Delta, None]:
        """The deltas of a server-sent stream of completions or chat chunks, up to its end mark.

        Raises:
            ModelError: an event is malformed or reports an error, the server aborted the reply, the stream ends
                without end mark and reason or without a reply, or it holds a thought and no text. An end mark
                without a reason is no end where an earlier stream gave one: llama-cpp-python drops the running
                stream so when another request comes.
        """
        has_finish = has_text = has_thought = False
        async for content in events_of(lines):
            if content is None:
                # Some servers give no reason and end with the mark alone.
                if not has_finish and (self._gives_reasons or not has_text):
                    said = "in its midst" if has_text else "without a reply"
                    raise ModelError(f"{DROPPED}, {said}", is_retryable=True)
                return
            try:
                event = WireReply.model_validate(content)
            except ValidationError as failure:
                raise ModelError(
                    "the server streamed an event that is not a completion", is_retryable=True
                ) from failure
            raise_reported(event.error, "aborted the stream")
            if event.finish == "other":
                raise ModelError(f"the server ended the reply with {event.finish_reason!r:.50}", is_retryable=True)
            has_finish = has_finish or event.finish is not None
            self._gives_reasons = self._gives_reasons or has_finish
            has_text = has_text or bool(event.text or event.token_ids)
            has_thought = has_thought or bool(event.thought)
            if event.finish in ("stop", "length") and has_thought and not has_text:
                raise ModelError("the server streamed a thought and no text", is_retryable=True)
            yield Delta(
                "" if event.refusal else event.text or "",
                event.usage,
                event.finish,
                isinstance(event.stop_reason, str),
                ids=tuple(event.token_ids or ()),
                logprobs=tuple(logprob for logprob in event.token_logprobs or () if logprob is not None),
                thought=event.thought if isinstance(event.thought, str) else "",
            )
        # `transformers serve` says why the reply ended, and sends no mark.
        if not has_finish:
            raise ModelError("the stream ended before its end mark", is_retryable=True)
