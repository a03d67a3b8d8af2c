"""Any server that speaks OpenAI's API, with a JSON schema where one is asked for, streams, and what vLLM adds."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

import httpx2
from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field, SecretStr, TypeAdapter, ValidationError

from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.base import (
    WEB_PAGE,
    ChatReply,
    ChatRequest,
    ContextOverflow,
    Delta,
    Finish,
    is_web_page,
    redact_failure,
    redactor_of,
    says_overflow,
    status_error,
)
from rubricem_env.llm.limits import parse_retry_after
from rubricem_env.llm.usage import Count, Usage

MAX_REPLY_BYTES = 5_000_000
"""Of a whole reply, and of one line of a stream, after decompression; a long reply has a tenth of it."""
MAX_STREAM_BYTES = 100_000_000
MIN_TOKENS = 64
"""If even a request of this size does not fit, the context is full."""
_FINISH: Mapping[str, Finish] = {
    **dict.fromkeys(("stop", "eos", "eos_token", "stop_sequence", "end_turn"), "stop"),
    **dict.fromkeys(("length", "max_tokens", "model_length"), "length"),
    "content_filter": "blocked",
}
"""As OpenAI writes it, and as other servers do."""
_NO_MODEL_LIST_YET = frozenset({401, 403, 408, 425, 429, 502, 503, 504, 529})
"""Statuses of GET models that do not tell which models there are: the key is wrong, or the server is busy or loading."""
Reply = TypeVar("Reply")


class WireReply(BaseModel):
    """The first choice and the token counts of a completion, or of one event of a stream; all else is ignored."""

    model_config = ConfigDict(extra="ignore")

    choices: list[Any] | None = None
    model: str | None = None
    error: Any = None
    text: str | None = Field(
        None,
        validation_alias=AliasChoices(
            AliasPath("choices", 0, "text"),
            AliasPath("choices", 0, "message", "content"),
            AliasPath("choices", 0, "delta", "content"),
        ),
    )
    finish_reason: str | None = Field(None, validation_alias=AliasPath("choices", 0, "finish_reason"))
    refusal: Any = Field(
        None,
        validation_alias=AliasChoices(
            AliasPath("choices", 0, "message", "refusal"), AliasPath("choices", 0, "delta", "refusal")
        ),
    )
    thought: Any = Field(
        None,
        validation_alias=AliasChoices(
            AliasPath("choices", 0, "delta", "reasoning_content"), AliasPath("choices", 0, "delta", "reasoning")
        ),
    )
    """Of a stream, from servers that keep it apart from the text."""
    stop_reason: str | int | None = Field(None, validation_alias=AliasPath("choices", 0, "stop_reason"))
    """vLLM: the stop string that ended the text."""
    token_ids: list[int] | None = Field(None, validation_alias=AliasPath("choices", 0, "token_ids"))
    """vLLM, when the request asks for them."""
    token_logprobs: list[float | None] | None = Field(
        None, validation_alias=AliasPath("choices", 0, "logprobs", "token_logprobs")
    )
    top_logprobs: list[dict[str, float] | None] | None = Field(
        None, validation_alias=AliasPath("choices", 0, "logprobs", "top_logprobs")
    )
    counts: dict[str, Any] | None = Field(None, validation_alias="usage")
    input_tokens: Count | None = Field(None, validation_alias=AliasPath("usage", "prompt_tokens"))
    output_tokens: Count | None = Field(None, validation_alias=AliasPath("usage", "completion_tokens"))
    cached_tokens: Count | None = Field(
        None, validation_alias=AliasPath("usage", "prompt_tokens_details", "cached_tokens")
    )

    @property
    def finish(self) -> Finish | None:
        """Why the text ends; None while it does not say."""
        if self.refusal:
            return "blocked"
        return _FINISH.get(self.finish_reason, "other") if self.finish_reason else None

    @property
    def usage(self) -> Usage | None:
        """The tokens of the call; None where the server does not report them."""
        if self.counts is None:
            return None
        return Usage(
            calls=1,
            input_tokens=self.input_tokens or 0,
            cached_tokens=self.cached_tokens or 0,
            output_tokens=self.output_tokens or 0,
        )


class ServedModel(BaseModel):
    """One entry of GET models."""

    id: str
    owned_by: str = ""
    max_model_len: int | None = None


_MODELS = TypeAdapter(list[ServedModel])
_TOKENS = TypeAdapter(list[int])
_TEXT = TypeAdapter(str)


async def read_events(lines: AsyncIterator[str]) -> AsyncGenerator[Delta, None]:
    """The deltas of a server-sent stream of completions or chat chunks, up to its end mark.

    Raises:
        ModelError: an event is malformed or reports an error, the server aborted the reply, the stream ends before its
            end mark or without a reply, or it holds a thought and no text.
    """
    has_finish = has_text = has_thought = False
    async for line in lines:
        if is_web_page(line):
            raise ModelError(f"the server answered with {WEB_PAGE}", is_retryable=True)
        if not line.startswith("data:"):
            continue
        content = line.removeprefix("data:").strip()
        if content == "[DONE]":
            # Some servers give no reason and end with the mark alone.
            if not (has_finish or has_text):
                raise ModelError("the stream ended without a reply", is_retryable=True)
            return
        event = _read_event(content)
        has_finish = has_finish or event.finish is not None
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
        )
    raise ModelError("the stream ended before its end mark", is_retryable=True)


def _read_event(content: str) -> WireReply:
    try:
        event = WireReply.model_validate_json(content)
    except ValidationError as failure:
        raise ModelError("the server streamed an event that is not a completion", is_retryable=True) from failure
    _raise_error(event, "aborted the stream")
    if event.finish == "other":
        raise ModelError(f"the server ended the reply with {event.finish_reason!r:.50}", is_retryable=True)
    return event


def _raise_error(reply: WireReply, action: str) -> None:
    if reply.error is not None:
        message = reply.error.get("message", "no message") if isinstance(reply.error, dict) else reply.error
        raise ModelError(f"the server {action}: {str(message)[:500]}", is_retryable=True)


class OpenAICompatibleModel:
    """One model on one server: chat completions, streams, and vLLM's tokenizer, with typed failures."""

    def __init__(
        self, model: str, base_url: str, *, key: SecretStr | None = None, key_variable: str = "", timeout: float = 300.0
    ) -> None:
        """`timeout` is in seconds of silence; local servers often want no key.

        `key_variable` names the environment variable of the key, for the message of a refusal. Redirects are not
        followed: a key must not wander.
        """
        self.name = model
        self._redactor = redactor_of([key] if key else [])
        self._key_variable = key_variable
        self._models: asyncio.Task[list[ServedModel]] | None = None
        self._client = httpx2.AsyncClient(
            base_url=base_url,
            headers={"authorization": f"Bearer {key.get_secret_value()}"} if key else {},
            timeout=timeout,
            limits=httpx2.Limits(max_connections=None),
            follow_redirects=False,
        )

    async def complete(self, request: ChatRequest) -> ChatReply:
        """One chat completion.

        Raises:
            ModelError: a rate limit, an outage, a broken connection, a reply that is no completion, or a refusal.
        """
        reply = await self._post("chat/completions", _chat(request), _read_completion)
        return ChatReply(
            text=reply.text or "",
            model=reply.model or self.name,
            usage=reply.usage or Usage(calls=1),
            finish=reply.finish or "stop",
        )

    async def complete_prompt(self, body: Mapping[str, Any]) -> WireReply:
        """One plain completion."""
        return await self._post("completions", body, _read_completion)

    async def stream(self, path: str, body: Mapping[str, Any], *, max_tokens: int) -> AsyncGenerator[Delta, None]:
        """The deltas of one stream; retried with fewer tokens while they do not fit after the prompt.

        Raises:
            ContextOverflow: not even `MIN_TOKENS` fit.
            ModelError: the server failed, or refuses the request.
        """
        sent = {**body, "model": self.name, "stream": True, "max_tokens": max_tokens}
        try:
            async with self._client.stream("POST", path, json=sent) as response:
                if response.status_code == httpx2.codes.OK:
                    async with aclosing(read_events(_lines(response))) as deltas:
                        async for delta in deltas:
                            yield delta
                    return
                refusal = self._refusal(response, await _read_whole(response))
        except httpx2.RequestError as failure:
            raise self._no_answer(failure) from failure
        except ModelError as failure:
            raise redact_failure(failure, self._redactor) from None
        if not isinstance(refusal, ContextOverflow) or max_tokens <= MIN_TOKENS:
            raise refusal
        async with aclosing(self.stream(path, body, max_tokens=max(MIN_TOKENS, max_tokens // 2))) as deltas:
            async for delta in deltas:
                yield delta

    async def find_on_vllm(self) -> ServedModel | None:
        """The entry of this model, if a vLLM server lists it; the server is asked once.

        Raises:
            ModelError: the server lists other models and not this one.
        """
        request = self._models
        if request is None or request.cancelled() or (request.done() and request.exception() is not None):
            request = self._models = asyncio.create_task(self._list_models())
        models = await asyncio.shield(request)
        ours = [model for model in models if model.id == self.name]
        if models and not ours:
            offered = ", ".join(model.id for model in models[:20])
            raise ModelError(f"the server has no model {self.name!r}; it has: {offered}. Name one of these.")
        return next((model for model in ours if model.owned_by == "vllm"), None)

    async def tokenize(self, body: Mapping[str, Any]) -> list[int]:
        """The ids of vLLM's tokenizer, for a prompt or for messages in the model's chat template."""
        return await self._post("../tokenize", body, lambda content: _TOKENS.validate_python(content["tokens"]))

    async def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of vLLM's tokenizer."""
        body = {"tokens": tokens}
        return await self._post("../detokenize", body, lambda content: _TEXT.validate_python(content["prompt"]))

    async def aclose(self) -> None:
        """Close the connections; the model cannot be used afterwards."""
        await self._client.aclose()

    async def _post(self, path: str, body: Mapping[str, Any], read: Callable[[Any], Reply]) -> Reply:
        response, content = await self._request("POST", path, {**body, "model": self.name})
        if response.status_code != httpx2.codes.OK:
            raise self._refusal(response, content)
        try:
            return read(json.loads(content))
        except ModelError as failure:
            raise redact_failure(failure, self._redactor) from None
        except (ValueError, TypeError, KeyError, RecursionError) as failure:
            if is_web_page(content[:100].decode("utf-8", "replace")):
                raise ModelError(f"the server answered with {WEB_PAGE}", is_retryable=True) from None
            raise ModelError(f"the server's reply to {path} cannot be read", is_retryable=True) from failure

    async def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> tuple[httpx2.Response, bytes]:
        try:
            async with self._client.stream(method, path, json=body) as response:
                return response, await _read_whole(response)
        except httpx2.RequestError as failure:
            raise self._no_answer(failure) from failure

    async def _list_models(self) -> list[ServedModel]:
        """The models that the server lists; empty where it lists none."""
        response, content = await self._request("GET", "models")
        if response.status_code in _NO_MODEL_LIST_YET:
            raise self._refusal(response, content)
        try:
            return _MODELS.validate_python(json.loads(content)["data"])
        except (ValueError, TypeError, KeyError, RecursionError):
            return []

    def _no_answer(self, failure: httpx2.RequestError) -> ModelError:
        said = self._redactor(f"{type(failure).__name__}: {failure}")
        return ModelError(f"no answer from {self._client.base_url}: {said}. Is the server running?", is_retryable=True)

    def _refusal(self, response: httpx2.Response, content: bytes) -> ModelError:
        said = self._redactor(content.decode("utf-8", "replace"))
        if response.status_code in (400, 413, 422) and says_overflow(said):
            return ContextOverflow(f"the conversation no longer fits the model's context: {said[:300]}")
        wait = parse_retry_after(response.headers.get("retry-after"))
        return status_error(response.status_code, said, retry_after=wait, key_variable=self._key_variable)


async def _read_whole(response: httpx2.Response) -> bytes:
    content = bytearray()
    async for chunk in response.aiter_bytes():
        content += chunk
        if len(content) > MAX_REPLY_BYTES:
            raise ModelError(
                f"the server answered with more than {MAX_REPLY_BYTES:,} bytes; the reply is not read",
                is_retryable=True,
            )
    return bytes(content)


async def _lines(response: httpx2.Response) -> AsyncGenerator[str, None]:
    """The lines of a stream; a line, and the whole stream, have a limit."""
    total, rest = 0, b""
    async for chunk in response.aiter_bytes():
        total += len(chunk)
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace")
        if len(rest) > MAX_REPLY_BYTES or total > MAX_STREAM_BYTES:
            raise ModelError(f"the server streamed more than {total:,} bytes; the rest is not read", is_retryable=True)
    yield rest.decode("utf-8", "replace")


def _read_completion(content: Any) -> WireReply:
    reply = WireReply.model_validate(content)
    _raise_error(reply, "answered with an error")
    if not reply.choices:
        raise ValueError("no choices")
    return reply


def _chat(request: ChatRequest) -> dict[str, Any]:
    system = [{"role": "system", "content": request.system}] if request.system else []
    body: dict[str, Any] = {
        "messages": [*system, {"role": "user", "content": request.prompt}],
        "temperature": request.temperature,
        "max_tokens": request.max_output_tokens,
    }
    if request.seed is not None:
        body["seed"] = request.seed
    if request.schema is not None:
        schema = {"name": request.schema.__name__, "strict": True, "schema": request.schema.model_json_schema()}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body
