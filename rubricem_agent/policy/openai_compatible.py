"""Any server that speaks OpenAI's API as a policy: one growing assistant turn on vLLM, chat messages elsewhere."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal, TypeVar

import httpx2
from pydantic import BaseModel, SecretStr, TypeAdapter, ValidationError

from rubricem_agent.policy.base import ContextOverflow, Opening, Sampling
from rubricem_agent.policy.text import Delta, Exchange, Service, TextConversation
from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.base import Redactor, redact_failure, redactor_of, status_error
from rubricem_env.llm.limits import parse_retry_after
from rubricem_env.llm.openai_compatible import WireReply, open_client
from rubricem_env.tools.render import estimate_tokens

MIN_TOKENS = 64
"""If even a request of this size does not fit, the context is full."""
STOP_STRINGS = ("</call_tool>", "</answer>")
_OVERFLOW = ("context_length_exceeded", "maximum context length", "max_model_len", "context window", "context size")
_NO_MODEL_LIST_YET = frozenset({401, 403, 408, 425, 429, 502, 503, 504, 529})
"""Statuses of GET models that do not tell which models there are: the key is wrong, or the server is busy or loading."""
Layout = Literal["auto", "inline", "messages"]
"""`inline` continues one assistant turn, as in training, and needs vLLM to render the chat template.

`messages` sends turns as assistant messages and observations as user messages, which any server can read. `auto` is
inline on vLLM, else messages.
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


def says_overflow(body: str) -> bool:
    """Whether a refusal is about the length of the context."""
    lowered = body.lower()
    return any(phrase in lowered for phrase in _OVERFLOW)


async def read_events(lines: AsyncIterator[str]) -> AsyncGenerator[Delta, None]:
    """The deltas of a server-sent stream of completions or chat chunks, up to its end mark.

    Raises:
        ModelError: an event is malformed or reports an error, or the stream ends before its end mark.
    """
    async for line in lines:
        if not line.startswith("data:"):
            continue
        content = line.removeprefix("data:").strip()
        if content == "[DONE]":
            return
        yield _read_delta(content)
    raise ModelError("the stream ended before its end mark", is_retryable=True)


def _read_delta(content: str) -> Delta:
    try:
        event = WireReply.model_validate_json(content)
    except ValidationError as failure:
        raise ModelError("the server streamed an event that is not a completion", is_retryable=True) from failure
    if event.error is not None:
        message = event.error.get("message", "no message") if isinstance(event.error, dict) else event.error
        raise ModelError(f"the server aborted the stream: {str(message)[:500]}", is_retryable=True)
    return Delta(
        event.text or "",
        event.usage,
        event.finish,
        isinstance(event.stop_reason, str),
        ids=tuple(event.token_ids or ()),
        logprobs=tuple(logprob for logprob in event.token_logprobs or () if logprob is not None),
    )


class OpenAIServer:
    """One model on one server: HTTP, streams and typed failures. Knows nothing of episodes."""

    def __init__(self, model: str, client: httpx2.AsyncClient, *, redactor: Redactor, key_variable: str = "") -> None:
        self.model = model
        self._client = client
        self._redactor = redactor
        self._key_variable = key_variable
        self._models: asyncio.Task[list[ServedModel]] | None = None

    @classmethod
    def connect(
        cls, model: str, base_url: str, *, key: SecretStr | None = None, key_variable: str = "", timeout: float = 300.0
    ) -> "OpenAIServer":
        """A model by name; `timeout` is in seconds of silence.

        `key_variable` names the environment variable of the key, for the message of a refusal.
        """
        client = open_client(base_url, key=key, timeout=timeout)
        return cls(model, client, redactor=redactor_of([key] if key else []), key_variable=key_variable)

    async def stream(self, path: str, body: Mapping[str, Any], *, max_tokens: int) -> AsyncGenerator[Delta, None]:
        """The deltas of one stream; retried with fewer tokens while they do not fit after the prompt.

        Raises:
            ContextOverflow: not even `MIN_TOKENS` fit.
            ModelError: the server failed, or refuses the request.
        """
        sent = {**body, "model": self.model, "stream": True, "max_tokens": max_tokens}
        try:
            async with self._client.stream("POST", path, json=sent) as response:
                if response.status_code == httpx2.codes.OK:
                    async with aclosing(read_events(response.aiter_lines())) as deltas:
                        async for delta in deltas:
                            yield delta
                    return
                refusal = self._refusal(response, await response.aread())
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
        ours = [model for model in models if model.id == self.model]
        if models and not ours:
            offered = ", ".join(model.id for model in models[:20])
            raise ModelError(f"the server has no model {self.model!r}; it has: {offered}. Name one of these.")
        return next((model for model in ours if model.owned_by == "vllm"), None)

    async def tokenize(self, body: Mapping[str, Any]) -> list[int]:
        """The ids of vLLM's tokenizer, for a prompt or for messages in the model's chat template."""
        return await self._post("../tokenize", body, lambda content: _TOKENS.validate_python(content["tokens"]))

    async def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of vLLM's tokenizer."""
        body = {"tokens": tokens}
        return await self._post("../detokenize", body, lambda content: _TEXT.validate_python(content["prompt"]))

    async def complete(self, body: Mapping[str, Any]) -> WireReply:
        """One plain completion."""
        return await self._post("completions", body, WireReply.model_validate)

    async def aclose(self) -> None:
        """Close the connections; the server cannot be used afterwards."""
        await self._client.aclose()

    async def _post(self, path: str, body: Mapping[str, Any], read: Callable[[Any], Reply]) -> Reply:
        try:
            response = await self._client.post(path, json={**body, "model": self.model})
        except httpx2.RequestError as failure:
            raise self._no_answer(failure) from failure
        if response.status_code != httpx2.codes.OK:
            raise self._refusal(response, response.content)
        try:
            return read(json.loads(response.content))
        except (ValueError, TypeError, KeyError) as failure:
            raise ModelError(f"the server's reply to {path} cannot be read", is_retryable=True) from failure

    async def _list_models(self) -> list[ServedModel]:
        """The models that the server lists; empty where it lists none."""
        try:
            response = await self._client.get("models")
        except httpx2.RequestError as failure:
            raise self._no_answer(failure) from failure
        if response.status_code in _NO_MODEL_LIST_YET:
            raise self._refusal(response, response.content)
        try:
            return _MODELS.validate_python(json.loads(response.content)["data"])
        except (ValueError, TypeError, KeyError):
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


class OpenAICompatiblePolicy:
    """A served model in text mode."""

    def __init__(self, server: OpenAIServer, service: Service, *, layout: Layout = "auto") -> None:
        self._server = server
        self._service = service
        self._layout = layout

    @property
    def name(self) -> str:
        return self._service.name

    def open(self, opening: Opening, *, sampling: Sampling, seed: int) -> TextConversation:
        settings = {"temperature": sampling.temperature, "seed": seed % (1 << 31)}
        messages = [{"role": "system", "content": opening.system}, {"role": "user", "content": opening.user}]
        prompt = ""

        async def stream(exchanges: Sequence[Exchange], begun: str, max_tokens: int) -> AsyncGenerator[Delta, None]:
            """Continue the turn, in the layout that the server supports."""
            nonlocal prompt
            if await self._is_inline():
                prompt = prompt or await self._render(messages)
                path, body = "completions", _continuation(prompt, exchanges, begun)
            else:
                path, body = "chat/completions", _messages(messages, exchanges)
            async with aclosing(self._server.stream(path, {**settings, **body}, max_tokens=max_tokens)) as deltas:
                async for delta in deltas:
                    yield delta

        return TextConversation(stream, opening, service=self._service)

    def count_tokens(self, text: str) -> int:
        return estimate_tokens(text)

    async def aclose(self) -> None:
        await self._server.aclose()

    async def _is_inline(self) -> bool:
        if self._layout == "auto":
            self._layout = "messages" if await self._server.find_on_vllm() is None else "inline"
        return self._layout == "inline"

    async def _render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The opening in the model's chat template, which the server knows."""
        return await self._server.detokenize(
            await self._server.tokenize({"messages": messages, "add_generation_prompt": True})
        )


def _continuation(prompt: str, exchanges: Sequence[Exchange], begun: str) -> dict[str, Any]:
    return {
        "prompt": prompt + "".join(part for exchange in exchanges for part in exchange) + begun,
        "add_special_tokens": False,
        "skip_special_tokens": True,
        "stop": list(STOP_STRINGS),
        "include_stop_str_in_output": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }


def _messages(opening: Sequence[Mapping[str, str]], exchanges: Sequence[Exchange]) -> dict[str, Any]:
    messages = list(opening)
    for turn, observation in exchanges:
        messages.append({"role": "assistant", "content": turn or "(nothing)"})
        messages.append({"role": "user", "content": observation or "(nothing)"})
    return {"messages": messages, "stream_options": {"include_usage": True}}
