"""Any server that speaks OpenAI's API as a policy: vLLM with the whole episode in one assistant turn, others in messages.

The bodies and events of OpenAI's streaming API, with what vLLM adds to it; only what is needed of them is read.

One model on a server that speaks OpenAI's API: HTTP, typed failures, streams. Knows nothing of episodes.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import httpx2
from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from rubricem_agent.policy.base import ContextOverflow, Opening, Sampling
from rubricem_agent.policy.text import Delta, Exchange, Service, TextConversation
from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.base import Finish, PassingModelError, Redactor, status_error
from rubricem_env.llm.limits import parse_retry_after
from rubricem_env.llm.openai_compatible import open_client
from rubricem_env.llm.usage import Usage
from rubricem_env.tools.render import estimate_tokens

_FINISH: Mapping[str, Finish] = MappingProxyType(
    {"stop": Finish.STOP, "length": Finish.LENGTH, "content_filter": Finish.BLOCKED}
)
_OVERFLOW = ("context_length_exceeded", "maximum context length", "max_model_len", "context window", "context size")


class _Loose(BaseModel):
    """Servers add fields of their own; only ours are read."""

    model_config = ConfigDict(extra="ignore")


class _Content(_Loose):
    content: str | None = None


class _Logprobs(_Loose):
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None


class _Choice(_Loose):
    text: str | None = None
    token_ids: list[int] | None = None
    """vLLM, asked for them."""
    logprobs: _Logprobs | None = None
    delta: _Content | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    """vLLM: the stop string that ended it."""


class _Cached(_Loose):
    cached_tokens: int | None = None


class _Tokens(_Loose):
    prompt_tokens: int = 0
    completion_tokens: int | None = 0
    prompt_tokens_details: _Cached | None = None


class _Event(_Loose):
    choices: list[_Choice] = []
    usage: _Tokens | None = None
    error: dict[str, object] | None = None


class _Model(_Loose):
    id: str
    owned_by: str = ""
    max_model_len: int | None = None


class Models(_Loose):
    """The answer to GET models."""

    data: list[_Model] = []

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(model.id for model in self.data)

    def is_vllm(self, name: str) -> bool:
        return any(model.id == name and model.owned_by == "vllm" for model in self.data)

    def vllm_length(self, name: str) -> int:
        """The tokens that a model of vLLM reads; 0 where it is none."""
        lengths = (model.max_model_len or 0 for model in self.data if model.id == name and model.owned_by == "vllm")
        return max(lengths, default=0)


class Tokenized(_Loose):
    """vLLM's answer to POST tokenize."""

    tokens: list[int]


class Detokenized(_Loose):
    """vLLM's answer to POST detokenize."""

    prompt: str


class WireCompletion(_Loose):
    """A plain answer to POST completions."""

    choices: list[_Choice] = []

    @property
    def top_logprobs(self) -> tuple[float, ...]:
        """Of the alternatives to the first token."""
        logprobs = self.choices[0].logprobs if self.choices else None
        first = logprobs.top_logprobs[0] if logprobs and logprobs.top_logprobs else None
        return tuple((first or {}).values())


def says_overflow(body: str) -> bool:
    """Whether a refusal speaks of the length of the context."""
    lowered = body.lower()
    return any(phrase in lowered for phrase in _OVERFLOW)


async def read_events(lines: AsyncIterator[str]) -> AsyncGenerator[Delta, None]:
    """The pieces of a server-sent stream of completions or chat chunks, up to its end mark.

    Raises:
        PassingModelError: an event is broken or reports an error, or the stream breaks off before its end mark.
    """
    async for line in lines:
        if not line.startswith("data:"):
            continue
        content = line.removeprefix("data:").strip()
        if content == "[DONE]":
            return
        yield _delta(content)
    raise PassingModelError("the stream broke off before its end")


def _delta(content: str) -> Delta:
    try:
        event = _Event.model_validate_json(content)
    except ValidationError as failure:
        raise PassingModelError("the server streamed what is no completion") from failure
    if event.error is not None:
        raise PassingModelError(f"the server broke off: {str(event.error.get('message', 'no message'))[:500]}")
    choice = event.choices[0] if event.choices else _Choice()
    text = choice.text if choice.text is not None else (choice.delta.content if choice.delta else None)
    finish = _FINISH.get(choice.finish_reason, Finish.OTHER) if choice.finish_reason else None
    logprobs = (choice.logprobs.token_logprobs or []) if choice.logprobs else []
    return Delta(
        text or "",
        _usage(event.usage),
        finish,
        isinstance(choice.stop_reason, str),
        ids=tuple(choice.token_ids or ()),
        logprobs=tuple(logprob for logprob in logprobs if logprob is not None),
    )


def _usage(tokens: _Tokens | None) -> Usage | None:
    if tokens is None:
        return None
    cached = tokens.prompt_tokens_details.cached_tokens if tokens.prompt_tokens_details else None
    return Usage(
        calls=1,
        input_tokens=tokens.prompt_tokens,
        cached_tokens=cached or 0,
        output_tokens=tokens.completion_tokens or 0,
    )


LEAST_TOKENS = 64
"""Where not even so many fit any more, the context is full."""
_NO_ANSWER_YET = frozenset({401, 403, 408, 425, 429, 502, 503, 504, 529})
"""Statuses that say nothing of what the server offers: the key is wrong, or it is busy or still loading."""
Body = TypeVar("Body", bound=BaseModel)


class Request(NamedTuple):
    """One stream to ask for."""

    path: str
    body: Mapping[str, Any]
    max_tokens: int


class OpenAIServer:
    """One model on one server; speaks HTTP, knows nothing of episodes."""

    def __init__(self, model: str, client: httpx2.AsyncClient, *, redactor: Redactor, key_variable: str = "") -> None:
        self.model = model
        self._client = client
        self._redactor = redactor
        self._key_variable = key_variable
        self._models: asyncio.Task[Models] | None = None

    @classmethod
    def connect(
        cls,
        model: str,
        base_url: str,
        *,
        key: SecretStr | None = None,
        key_variable: str = "",
        timeout: float = 300.0,
    ) -> "OpenAIServer":
        """A model by name; `timeout` is in seconds of silence.

        `key_variable` is where a person sets the key, for the sentence of a refusal.
        """
        client = open_client(base_url, key=key, timeout=timeout)
        return cls(model, client, redactor=Redactor([key] if key else []), key_variable=key_variable)

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """The deltas of one stream; asked again for fewer tokens while they do not fit beside the prompt.

        Raises:
            ContextOverflow: not even a few fit.
            PassingModelError: the same request may succeed later.
            ModelError: it will not.
        """
        body = {**request.body, "model": self.model, "stream": True, "max_tokens": request.max_tokens}
        try:
            async with self._client.stream("POST", request.path, json=body) as response:
                if response.status_code == httpx2.codes.OK:
                    async with aclosing(read_events(response.aiter_lines())) as deltas:
                        async for delta in deltas:
                            yield delta
                    return
                refusal = self._refusal(response, await response.aread())
        except httpx2.RequestError as failure:
            raise self._no_answer(failure) from failure
        except PassingModelError as failure:
            raise PassingModelError(self._redactor.redact(str(failure)), retry_after=failure.retry_after) from None
        if not isinstance(refusal, ContextOverflow) or request.max_tokens <= LEAST_TOKENS:
            raise refusal
        smaller = request._replace(max_tokens=max(LEAST_TOKENS, request.max_tokens // 2))
        async with aclosing(self.stream(smaller)) as deltas:
            async for delta in deltas:
                yield delta

    async def models(self) -> Models:
        """What the server offers; asked once. Empty where it does not say.

        Raises:
            ModelError: the server offers other models than this one.
        """
        asked = self._models
        if asked is None or asked.cancelled() or (asked.done() and asked.exception() is not None):
            asked = self._models = asyncio.create_task(self._ask_for_models())
        models = await asyncio.shield(asked)
        if models.names and self.model not in models.names:
            offered = ", ".join(models.names[:20])
            raise ModelError(f"the server has no model {self.model!r}; it has: {offered}. Name one of these.")
        return models

    async def ask(self, path: str, body: Mapping[str, Any], *, reply: type[Body]) -> Body:
        """One plain request outside the API's own root, as vLLM's tokenizer is."""
        try:
            response = await self._client.post(path, json={**body, "model": self.model})
        except httpx2.RequestError as failure:
            raise self._no_answer(failure) from failure
        if response.status_code != httpx2.codes.OK:
            raise self._refusal(response, response.content)
        try:
            return reply.model_validate_json(response.content)
        except ValidationError as failure:
            raise PassingModelError(f"the server answered {path} with what cannot be read") from failure

    async def aclose(self) -> None:
        """Close the connections; the server cannot be used afterwards."""
        await self._client.aclose()

    async def _ask_for_models(self) -> Models:
        try:
            response = await self._client.get("models")
        except httpx2.RequestError as failure:
            raise self._no_answer(failure) from failure
        if response.status_code in _NO_ANSWER_YET:
            raise self._refusal(response, response.content)
        try:
            return Models.model_validate_json(response.content)
        except ValidationError:
            return Models()

    def _no_answer(self, failure: httpx2.RequestError) -> PassingModelError:
        said = self._redactor.redact(f"{type(failure).__name__}: {failure}")
        return PassingModelError(f"no answer from {self._client.base_url}: {said}. Is the server running?")

    def _refusal(self, response: httpx2.Response, content: bytes) -> ModelError:
        said = self._redactor.redact(content.decode("utf-8", "replace"))
        if response.status_code in (400, 413, 422) and says_overflow(said):
            return ContextOverflow(f"the conversation no longer fits the model's context: {said[:300]}")
        wait = parse_retry_after(response.headers.get("retry-after"))
        return status_error(response.status_code, said, retry_after=wait, key_variable=self._key_variable)


STOP_STRINGS = ("</call_tool>", "</answer>")


class Layout(StrEnum):
    """How an episode is put to the server."""

    AUTO = "auto"
    """Inline on vLLM, in messages elsewhere."""
    INLINE = "inline"
    """One assistant turn that is continued, as in training. Needs vLLM, which renders the chat template."""
    MESSAGES = "messages"
    """Turns as assistant messages, observations as user messages; any server can do it."""


class OpenAICompatiblePolicy:
    """A served model in text mode."""

    def __init__(self, server: OpenAIServer, service: Service, *, layout: Layout = Layout.AUTO) -> None:
        self._server = server
        self._service = service
        self._layout = layout

    @property
    def name(self) -> str:
        return self._service.name

    def open(self, opening: Opening, *, sampling: Sampling, seed: int) -> TextConversation:
        settings = {"temperature": sampling.temperature, "seed": seed % (1 << 31)}
        thread = _Thread(self._server, opening, settings=settings, layout=self._layout)
        return TextConversation(thread, opening, service=self._service)

    def count_tokens(self, text: str) -> int:
        return estimate_tokens(text)

    async def aclose(self) -> None:
        await self._server.aclose()


class _Thread:
    """One conversation as this server sees it."""

    def __init__(self, server: OpenAIServer, opening: Opening, *, settings: Mapping[str, Any], layout: Layout) -> None:
        self._server = server
        self._opening = opening
        self._settings = settings
        self._layout = layout
        self._prompt: str | None = None

    async def stream(
        self, exchanges: Sequence[Exchange], begun: str, *, max_tokens: int
    ) -> AsyncGenerator[Delta, None]:
        """Continue in the layout that the server can do."""
        if self._layout is Layout.AUTO:
            is_vllm = (await self._server.models()).is_vllm(self._server.model)
            self._layout = Layout.INLINE if is_vllm else Layout.MESSAGES
        if self._layout is Layout.INLINE:
            request = await self._inline(exchanges, begun)
        else:
            request = self._in_messages(exchanges)
        async with aclosing(self._server.stream(request._replace(max_tokens=max_tokens))) as deltas:
            async for delta in deltas:
                yield delta

    async def _inline(self, exchanges: Sequence[Exchange], begun: str) -> Request:
        if self._prompt is None:
            self._prompt = await self._render()
        body = {
            **self._settings,
            "prompt": self._prompt + "".join(part for exchange in exchanges for part in exchange) + begun,
            "add_special_tokens": False,
            "skip_special_tokens": True,
            "stop": list(STOP_STRINGS),
            "include_stop_str_in_output": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }
        return Request("completions", body, LEAST_TOKENS)

    async def _render(self) -> str:
        """The opening in the model's own chat template, by the server that knows it."""
        asked = {"messages": self._messages(), "add_generation_prompt": True}
        tokens = (await self._server.ask("../tokenize", asked, reply=Tokenized)).tokens
        return (await self._server.ask("../detokenize", {"tokens": tokens}, reply=Detokenized)).prompt

    def _in_messages(self, exchanges: Sequence[Exchange]) -> Request:
        messages = self._messages()
        for exchange in exchanges:
            messages.append({"role": "assistant", "content": exchange.text or "(nothing)"})
            messages.append({"role": "user", "content": exchange.observation or "(nothing)"})
        body = {**self._settings, "messages": messages, "stream_options": {"include_usage": True}}
        return Request("chat/completions", body, LEAST_TOKENS)

    def _messages(self) -> list[dict[str, str]]:
        return [{"role": "system", "content": self._opening.system}, {"role": "user", "content": self._opening.user}]
