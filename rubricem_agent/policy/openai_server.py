"""One model on a server that speaks OpenAI's API: HTTP, typed failures, streams. Knows nothing of episodes."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, NamedTuple, TypeVar

import httpx2
from pydantic import BaseModel, SecretStr, ValidationError

from rubricem_agent.policy.base import ContextOverflow
from rubricem_agent.policy.openai_wire import Models, read_events, says_overflow
from rubricem_agent.policy.text_conversation import Delta
from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.base import PassingModelError, status_error
from rubricem_env.llm.openai_compatible import open_client
from rubricem_env.llm.retry import parse_retry_after
from rubricem_env.llm.secrets import Redactor

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
