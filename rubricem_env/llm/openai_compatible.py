"""A model on any server that speaks one of the wires for chats, streams included, and what vLLM adds to OpenAI's.

A parameter that a model refuses, such as the temperature of a reasoning model, is left out or renamed from then on.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

import httpx2
from pydantic import BaseModel, SecretStr, TypeAdapter

from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.chat import ChatReply, ChatRequest, Delta, Effort
from rubricem_env.llm.hosts import url_host
from rubricem_env.llm.http_failures import WEB_PAGE, ContextOverflow, is_web_page, says_overflow, status_error
from rubricem_env.llm.keys import redact_failure, redactor_of
from rubricem_env.llm.limits.retry import parse_retry_after
from rubricem_env.llm.wires.chat_wire import ChatWire
from rubricem_env.llm.wires.dialects import AT_OPENAI, DIALECTS, REASONING_MODEL, in_dialect, is_refusal, learn_dialect
from rubricem_env.llm.wires.openai_reply import WireReply, read_completion
from rubricem_env.llm.wires.wire import Message, Wire

_LOG = logging.getLogger(__name__)
MAX_REPLY_BYTES = 5_000_000
"""The most bytes of a whole reply, and of one line of a stream, after decompression. A long reply has a tenth of it."""
MAX_STREAM_BYTES = 100_000_000
MIN_TOKENS = 64
"""If even a request of this size does not fit, the context is full."""
_NO_MODEL_LIST_YET = frozenset({401, 403, 408, 425, 429, 502, 503, 504, 529})
"""Statuses of GET models that do not tell which models there are.

The key is wrong, or the server is busy or loading.
"""
Reply = TypeVar("Reply")


class ServedModel(BaseModel):
    """One entry of GET models."""

    id: str
    owned_by: str = ""
    max_model_len: int | None = None


_MODELS = TypeAdapter(list[ServedModel])
_TOKENS = TypeAdapter(list[int])
_TEXT = TypeAdapter(str)


class OpenAICompatibleModel:
    """One model on one server: chat completions, streams, and vLLM's tokenizer, with typed failures."""

    def __init__(
        self,
        model: str,
        base_url: str,
        *,
        key: SecretStr | None = None,
        key_variable: str = "",
        timeout: float = 300.0,
        wire: Wire | None = None,
        effort: Effort = "",
    ) -> None:
        """`timeout` is in seconds of silence; local servers often want no key. `wire` is chat completions by default.

        `effort` is sent with every chat; a model that does not take it refuses the request.

        `key_variable` names the environment variable of the key, for the message of a refusal. Redirects are not
        followed: a key must not wander.
        """
        self.name = model
        self.wire = wire or ChatWire()
        self._effort = effort
        self._redactor = redactor_of([key] if key else [])
        self._key_variable = key_variable
        self._models: asyncio.Task[list[ServedModel]] | None = None
        is_known = url_host(base_url) == "api.openai.com" and REASONING_MODEL.match(model) is not None
        known = AT_OPENAI.get(self.wire.path, {}) if is_known else {}
        self._dialect = DIALECTS.setdefault((base_url, self.wire.path, model), dict(known))
        self._client = httpx2.AsyncClient(
            base_url=base_url,
            headers=self.wire.headers(key),
            timeout=timeout,
            limits=httpx2.Limits(max_connections=None),
            follow_redirects=False,
        )

    async def complete(self, request: ChatRequest) -> ChatReply:
        """One reply of a chat.

        Raises:
            ModelError: a rate limit, an outage, a broken connection, a reply that is no completion, or a refusal.
        """
        body = self.wire.body(self._with_effort(request), [("user", request.prompt)])
        body[self.wire.limit_name] = request.max_output_tokens
        reply = await self._post(self.wire.path, body, self.wire.read)
        return reply if reply.model else reply.model_copy(update={"model": self.name})

    async def complete_prompt(self, body: Mapping[str, Any]) -> WireReply:
        """One plain completion."""
        return await self._post("completions", body, read_completion)

    def stream_chat(self, request: ChatRequest, messages: Sequence[Message]) -> AsyncGenerator[Delta, None]:
        """The deltas of one reply to these messages, in place of the request's prompt; as `stream` otherwise."""
        body = {**self.wire.body(self._with_effort(request), messages), **self.wire.when_streamed}
        return self._stream(self.wire.path, body, self.wire, request.max_output_tokens)

    def stream(self, path: str, body: Mapping[str, Any], *, max_tokens: int) -> AsyncGenerator[Delta, None]:
        """The deltas of one stream of OpenAI's wire; retried with fewer tokens while they do not fit after the prompt.

        Raises:
            ContextOverflow: not even `MIN_TOKENS` fit.
            ModelError: the server failed, or refuses the request.
        """
        wire = self.wire if isinstance(self.wire, ChatWire) else ChatWire()
        return self._stream(path, body, wire, max_tokens)

    async def _stream(
        self, path: str, body: Mapping[str, Any], wire: Wire, max_tokens: int
    ) -> AsyncGenerator[Delta, None]:
        sent = {**body, "model": self.name, "stream": True, wire.limit_name: max_tokens}
        try:
            async with self._client.stream("POST", path, json=in_dialect(sent, self._dialect)) as response:
                if response.status_code == httpx2.codes.OK:
                    async with aclosing(wire.read_stream(_lines(response))) as deltas:
                        async for delta in deltas:
                            yield delta
                    return
                content = await _read_whole(response)
                refusal = self._refusal(response, content)
        except httpx2.RequestError as failure:
            raise self._no_answer(failure) from failure
        except ModelError as failure:
            raise redact_failure(failure, self._redactor) from None
        except (TypeError, AttributeError) as failure:
            raise ModelError(f"the server streamed an event that is not one of {path}", is_retryable=True) from failure
        if not self._has_learned(response, sent, content):
            if not isinstance(refusal, ContextOverflow) or max_tokens <= MIN_TOKENS:
                raise refusal
            max_tokens = max(MIN_TOKENS, max_tokens // 2)
        async with aclosing(self._stream(path, body, wire, max_tokens)) as deltas:
            async for delta in deltas:
                yield delta

    def _with_effort(self, request: ChatRequest) -> ChatRequest:
        return request if request.effort or not self._effort else request._replace(effort=self._effort)

    def _has_learned(self, response: httpx2.Response, body: Mapping[str, Any], content: bytes) -> bool:
        """Whether a refusal told of a parameter that the model does not take, so that the request can be made again."""
        said = content.decode("utf-8", "replace")
        if not is_refusal(response.status_code, said):
            return False
        refused = learn_dialect(self._dialect, body, said)
        if refused:
            instead = self._dialect[refused]
            taken = f"{instead} is sent in its place" if instead else "it is left out"
            _LOG.warning("%s does not take %s: %s", self.name, refused, taken)
        return bool(refused)

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
        sent = {**body, "model": self.name}
        response, content = await self._request("POST", path, in_dialect(sent, self._dialect))
        while self._has_learned(response, sent, content):
            response, content = await self._request("POST", path, in_dialect(sent, self._dialect))
        if response.status_code != httpx2.codes.OK:
            raise self._refusal(response, content)
        try:
            return read(json.loads(content))
        except ModelError as failure:
            raise redact_failure(failure, self._redactor) from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as failure:
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
    total = 0
    rest = b""
    async for chunk in response.aiter_bytes():
        total += len(chunk)
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace")
        if len(rest) > MAX_REPLY_BYTES or total > MAX_STREAM_BYTES:
            raise ModelError(f"the server streamed more than {total:,} bytes; the rest is not read", is_retryable=True)
    yield rest.decode("utf-8", "replace")
