"""The protocol of a wire: how an API writes a chat, and how its replies and streams are read."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any, Literal, Protocol

from pydantic import SecretStr

from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.chat import ChatReply, ChatRequest, Delta, Finish
from rubricem_env.llm.http_failures import WEB_PAGE, is_web_page

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


def broken_stream() -> ModelError:
    return ModelError("the stream ended before its end mark", is_retryable=True)


def refuse_bare_end(finish: Finish, *, has_text: bool, has_thought: bool) -> None:
    if finish == "other":
        raise ModelError("the server ended the reply before the model did", is_retryable=True)
    if finish in ("stop", "length") and not has_text:
        said = "a thought and no text" if has_thought else "no text"
        raise ModelError(f"the server streamed {said}", is_retryable=True)


def count_of(value: Any) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""
