"""Gemini through google-genai, with response schemas. Retries are ours: the library's ignore Retry-After."""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx2
from google import genai
from google.genai import errors, types
from pydantic import SecretStr, ValidationError

from rubricem_env.domain.errors import ConfigError, ModelError
from rubricem_env.llm.chat import ChatReply, ChatRequest, Effort, Finish
from rubricem_env.llm.http_failures import ContextOverflow, says_overflow, status_error
from rubricem_env.llm.keys import Redactor
from rubricem_env.llm.limits.retry import parse_retry_after
from rubricem_env.llm.usage import Usage

MAX_REPLY_BYTES = 20_000_000
"""The most bytes of a whole reply, or of a whole stream."""
_LEVELS = ("minimal", "low", "medium", "high", "xhigh")
_OVERFLOW = "exceeds the maximum number of tokens"
_FINISH: Mapping[str, Finish | None] = {
    "FINISH_REASON_UNSPECIFIED": None,
    "STOP": "stop",
    "MAX_TOKENS": "length",
    **dict.fromkeys(
        ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE", "IMAGE_SAFETY"), "blocked"
    ),
}


class _LimitedStream(httpx2.AsyncByteStream):
    """A reply that fails beyond `MAX_REPLY_BYTES`."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        total = 0
        async for chunk in self._stream:
            total += len(chunk)
            if total > MAX_REPLY_BYTES:
                raise httpx2.ReadError(f"the reply has more than {MAX_REPLY_BYTES:,} bytes and is not read")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _limit_size(response: httpx2.Response) -> None:
    # A small compressed reply could become a large one, and none was asked for.
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx2.DecodingError("the reply is compressed, which was not requested", request=response.request)
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _LimitedStream(response.stream)


def open_client(key: SecretStr, *, base_url: str | None, timeout: float) -> tuple[genai.Client, httpx2.AsyncClient]:
    """A client and its transport; close both. `timeout` is in seconds, for one call.

    The transport is ours: the library switches to aiohttp where that is installed, which fails with other exceptions.
    """
    transport = httpx2.AsyncClient(
        timeout=timeout,
        limits=httpx2.Limits(max_connections=None),
        headers={"accept-encoding": "identity"},
        event_hooks={"response": [_limit_size]},
    )
    options = types.HttpOptions(base_url=base_url, timeout=int(timeout * 1000), httpx_async_client=transport)
    return genai.Client(api_key=key.get_secret_value(), vertexai=False, http_options=options), transport


@contextmanager
def typed_failures(redactor: Redactor = str) -> Iterator[None]:
    """Turn the library's failures into ModelErrors.

    They are not chained: they quote the reply, which may hold the key.
    """
    try:
        yield
    except errors.APIError as failure:
        said = redactor(failure.message or "")
        if failure.code == 400 and (_OVERFLOW in said or says_overflow(said)):
            raise ContextOverflow(f"the conversation no longer fits the model's context: {said[:300]}") from None
        raise status_error(failure.code, said, retry_after=read_retry_after(failure)) from None
    except httpx2.RequestError as failure:
        raise ModelError(f"no answer: {type(failure).__name__}: {failure}", is_retryable=True) from failure
    except (errors.UnknownApiResponseError, json.JSONDecodeError, ValidationError):
        # The library passes whatever it cannot read on in several ways; a gateway's page is the usual cause.
        raise ModelError(
            "the server answered with what is no reply of the Gemini API; check its address", is_retryable=True
        ) from None


def thinking_of(effort: Effort) -> types.ThinkingConfig | None:
    """Gemini's setting of an effort; None leaves it to the provider.

    Raises:
        ConfigError: Gemini has no such level.
    """
    if not effort:
        return None
    if effort not in _LEVELS:
        raise ConfigError(f"effort is {effort}, and Gemini's levels are {', '.join(_LEVELS)}. Choose one of these.")
    return types.ThinkingConfig(thinking_level=types.ThinkingLevel(effort.upper()))


class GeminiModel:
    """One model of the Gemini API, or of any server that speaks it."""

    def __init__(
        self,
        model: str,
        key: SecretStr,
        *,
        base_url: str | None = None,
        timeout: float = 300.0,
        effort: Effort = "",
    ) -> None:
        """`timeout` is in seconds, for one call."""
        self.name = model
        self._thinking = thinking_of(effort)
        self._client, self._transport = open_client(key, base_url=base_url, timeout=timeout)

    async def complete(self, request: ChatRequest) -> ChatReply:
        """One call of generateContent.

        Raises:
            ModelError: a rate limit, an outage, a broken connection, or a refusal.
        """
        config = types.GenerateContentConfig(
            system_instruction=request.system or None,
            temperature=request.temperature,
            top_p=request.top_p,
            max_output_tokens=request.max_output_tokens,
            seed=request.seed,
            response_mime_type="application/json" if request.schema else None,
            response_schema=request.schema,
            thinking_config=self._thinking,
        )
        with typed_failures():
            response = await self._client.aio.models.generate_content(
                model=self.name, contents=request.prompt, config=config
            )
        text, finish, thought = read_candidate(response)
        return ChatReply(
            text=text,
            model=response.model_version or self.name,
            usage=read_usage(response.usage_metadata) or Usage(calls=1),
            finish=finish or "stop",
            thought=thought,
        )

    async def aclose(self) -> None:
        """Close the connections; the model cannot be used afterwards."""
        await self._client.aio.aclose()
        await self._transport.aclose()


def read_usage(metadata: types.GenerateContentResponseUsageMetadata | None) -> Usage | None:
    """The tokens that a reply reports; None where it reports none."""
    if metadata is None:
        return None
    return Usage(
        calls=1,
        input_tokens=(metadata.prompt_token_count or 0) + (metadata.tool_use_prompt_token_count or 0),
        cached_tokens=metadata.cached_content_token_count or 0,
        output_tokens=(metadata.candidates_token_count or 0) + (metadata.thoughts_token_count or 0),
    )


class Candidate(NamedTuple):
    """The first candidate of a reply, or of a part of a stream."""

    text: str = ""
    finish: Finish | None = None
    """Why the text ends. It is None where the reply does not say."""
    thought: str = ""


def read_candidate(response: types.GenerateContentResponse) -> Candidate:
    """The first candidate; an empty one where there is none."""
    candidate = response.candidates[0] if response.candidates else None
    if candidate is None:
        # A part with usage alone has no candidate either. A blocked prompt has a reason.
        is_blocked = response.prompt_feedback and response.prompt_feedback.block_reason
        return Candidate(finish="blocked" if is_blocked else None)
    parts = (candidate.content.parts if candidate.content else None) or []
    text = "".join(part.text for part in parts if part.text and not part.thought)
    thought = "".join(part.text for part in parts if part.text and part.thought)
    finish = _FINISH.get(candidate.finish_reason.value, "other") if candidate.finish_reason else None
    return Candidate(text, finish, thought)


def read_retry_after(failure: errors.APIError) -> float | None:
    """The seconds from the header, or from the RetryInfo that Google puts into the body."""
    headers: Any = failure.response.headers if failure.response is not None else {}
    return parse_retry_after(headers.get("retry-after")) or _retry_info(failure.details)


def _retry_info(details: Any) -> float | None:
    error = details.get("error", details) if isinstance(details, dict) else {}
    entries = error.get("details", []) if isinstance(error, dict) else []
    for entry in entries if isinstance(entries, list) else []:
        delay = entry.get("retryDelay") if isinstance(entry, dict) else None
        if isinstance(delay, str) and delay.endswith("s"):
            return parse_retry_after(delay[:-1])
    return None
