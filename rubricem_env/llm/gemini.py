"""Gemini through google-genai, with response schemas. Retries are ours: the library's ignore Retry-After."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
from google import genai
from google.genai import errors, types
from pydantic import SecretStr, ValidationError

from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.base import ChatReply, ChatRequest, Finish, Redactor, status_error
from rubricem_env.llm.limits import parse_retry_after
from rubricem_env.llm.usage import Usage

_BLOCKS = frozenset({"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE"})


def open_client(key: SecretStr, *, base_url: str | None, timeout: float) -> tuple[genai.Client, httpx2.AsyncClient]:
    """A client and its transport; close both. `timeout` is in seconds, for one call.

    The transport is ours: the library switches to aiohttp where that is installed, which fails with other exceptions.
    """
    transport = httpx2.AsyncClient(timeout=timeout, limits=httpx2.Limits(max_connections=None))
    options = types.HttpOptions(base_url=base_url, timeout=int(timeout * 1000), httpx_async_client=transport)
    return genai.Client(api_key=key.get_secret_value(), vertexai=False, http_options=options), transport


@contextmanager
def typed_failures(redactor: Redactor = str) -> Iterator[None]:
    """Turn the library's failures into ModelErrors. They are not chained: they quote the reply, which may hold the key."""
    try:
        yield
    except errors.APIError as failure:
        said = redactor(failure.message or "")
        raise status_error(failure.code, said, retry_after=read_retry_after(failure)) from None
    except httpx2.RequestError as failure:
        raise ModelError(f"no answer: {type(failure).__name__}: {failure}", is_retryable=True) from failure
    except (errors.UnknownApiResponseError, json.JSONDecodeError, ValidationError):
        # The library passes whatever it cannot read on in several ways; a gateway's page is the usual cause.
        raise ModelError("the server answered with what is no reply of the Gemini API", is_retryable=True) from None


class GeminiModel:
    """One model of the Gemini API, or of any server that speaks it."""

    def __init__(self, model: str, key: SecretStr, *, base_url: str | None = None, timeout: float = 300.0) -> None:
        """`timeout` is in seconds, for one call."""
        self.name = model
        self._client, self._transport = open_client(key, base_url=base_url, timeout=timeout)

    async def complete(self, request: ChatRequest) -> ChatReply:
        """One call of generateContent.

        Raises:
            ModelError: a rate limit, an outage, a broken connection, or a refusal.
        """
        with typed_failures():
            response = await self._client.aio.models.generate_content(
                model=self.name, contents=request.prompt, config=_config(request)
            )
        return self._reply(response)

    async def aclose(self) -> None:
        """Close the connections; the model cannot be used afterwards."""
        await self._client.aio.aclose()
        await self._transport.aclose()

    def _reply(self, response: types.GenerateContentResponse) -> ChatReply:
        candidate = response.candidates[0] if response.candidates else None
        parts = (candidate.content.parts if candidate and candidate.content else None) or []
        return ChatReply(
            text="".join(part.text for part in parts if part.text and not part.thought),
            model=response.model_version or self.name,
            usage=read_usage(response.usage_metadata) or Usage(calls=1),
            finish=_finish(candidate),
        )


def _config(request: ChatRequest) -> types.GenerateContentConfig:
    return types.GenerateContentConfig(
        system_instruction=request.system or None,
        temperature=request.temperature,
        max_output_tokens=request.max_output_tokens,
        seed=request.seed,
        response_mime_type="application/json" if request.schema else None,
        response_schema=request.schema,
    )


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


def _finish(candidate: types.Candidate | None) -> Finish:
    # No candidate at all is how the API says that it blocked the prompt.
    if candidate is None:
        return "blocked"
    reason = str(getattr(candidate.finish_reason, "value", "") or "")
    if reason in _BLOCKS:
        return "blocked"
    finishes: dict[str, Finish] = {"STOP": "stop", "MAX_TOKENS": "length"}
    return finishes.get(reason, "other")


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
