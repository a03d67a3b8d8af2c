"""Any server that speaks OpenAI's chat completions, with a JSON schema where one is asked for."""

from collections.abc import Mapping
from typing import Any

import httpx2
from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from rubricem_env.llm.base import ChatReply, ChatRequest, Finish, PassingModelError, status_error
from rubricem_env.llm.limits import parse_retry_after
from rubricem_env.llm.usage import Usage

_FINISH: Mapping[str, Finish] = {"stop": Finish.STOP, "length": Finish.LENGTH, "content_filter": Finish.BLOCKED}


class _Loose(BaseModel):
    """Servers add fields of their own; only ours are read."""

    model_config = ConfigDict(extra="ignore")


class _Message(_Loose):
    content: str | None = None


class _Choice(_Loose):
    message: _Message
    finish_reason: str | None = None


class _Cached(_Loose):
    cached_tokens: int | None = None


class _Tokens(_Loose):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _Cached | None = None


class _Completion(_Loose):
    choices: list[_Choice]
    model: str | None = None
    usage: _Tokens | None = None


def open_client(base_url: str, *, key: SecretStr | None, timeout: float) -> httpx2.AsyncClient:
    """For one server; `timeout` is in seconds of silence. Redirects are not followed: a key must not wander."""
    return httpx2.AsyncClient(
        base_url=base_url,
        headers={"authorization": f"Bearer {key.get_secret_value()}"} if key else {},
        timeout=timeout,
        limits=httpx2.Limits(max_connections=None),
        follow_redirects=False,
    )


class OpenAICompatibleModel:
    """One model behind `<base_url>/chat/completions`."""

    def __init__(self, model: str, client: httpx2.AsyncClient, *, key_variable: str = "") -> None:
        self._model = model
        self._key_variable = key_variable
        self._client = client

    @classmethod
    def connect(
        cls,
        model: str,
        base_url: str,
        *,
        key: SecretStr | None = None,
        key_variable: str = "",
        timeout: float = 300.0,
    ) -> "OpenAICompatibleModel":
        """A model by name; local servers often want no key.

        `key_variable` is where a person sets the key, for the sentence of a refusal.
        """
        return cls(model, open_client(base_url, key=key, timeout=timeout), key_variable=key_variable)

    @property
    def name(self) -> str:
        return self._model

    async def complete(self, request: ChatRequest) -> ChatReply:
        """One chat completion.

        Raises:
            PassingModelError: a rate limit, an outage, a broken connection, a reply that is no completion.
            ModelError: the server refuses the request.
        """
        try:
            response = await self._client.post("chat/completions", json=self._body(request))
        except httpx2.RequestError as failure:
            raise PassingModelError(f"no answer: {type(failure).__name__}: {failure}") from failure
        if response.status_code != httpx2.codes.OK:
            wait = parse_retry_after(response.headers.get("retry-after"))
            raise status_error(response.status_code, response.text, retry_after=wait, key_variable=self._key_variable)
        try:
            return self._reply(_Completion.model_validate_json(response.content))
        except ValidationError as failure:
            raise PassingModelError("the server answered 200 with what is no chat completion") from failure

    async def aclose(self) -> None:
        """Close the connections; the model cannot be used afterwards."""
        await self._client.aclose()

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        system = [{"role": "system", "content": request.system}] if request.system else []
        body: dict[str, Any] = {
            "model": self._model,
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

    def _reply(self, completion: _Completion) -> ChatReply:
        choice = completion.choices[0] if completion.choices else None
        used = completion.usage or _Tokens()
        cached = used.prompt_tokens_details.cached_tokens if used.prompt_tokens_details else None
        return ChatReply(
            text=(choice.message.content if choice else None) or "",
            model=completion.model or self._model,
            usage=Usage(
                calls=1,
                input_tokens=used.prompt_tokens,
                cached_tokens=cached or 0,
                output_tokens=used.completion_tokens,
            ),
            finish=_FINISH.get((choice.finish_reason if choice else None) or "", Finish.OTHER),
        )
