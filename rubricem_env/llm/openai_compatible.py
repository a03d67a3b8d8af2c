"""Any server that speaks OpenAI's chat completions, with a JSON schema where one is asked for."""

from collections.abc import Mapping
from typing import Any

import httpx2
from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field, SecretStr, ValidationError

from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.base import ChatReply, ChatRequest, Finish, status_error
from rubricem_env.llm.limits import parse_retry_after
from rubricem_env.llm.usage import Count, Usage

_FINISH: Mapping[str, Finish] = {"stop": "stop", "length": "length", "content_filter": "blocked"}
_NO_COMPLETION = "the server answered 200, and its body is not a chat completion"


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
            ModelError: a rate limit, an outage, a broken connection, a reply that is no completion, or a refusal.
        """
        try:
            response = await self._client.post("chat/completions", json=self._body(request))
        except httpx2.RequestError as failure:
            raise ModelError(f"no answer: {type(failure).__name__}: {failure}", is_retryable=True) from failure
        if response.status_code != httpx2.codes.OK:
            wait = parse_retry_after(response.headers.get("retry-after"))
            raise status_error(response.status_code, response.text, retry_after=wait, key_variable=self._key_variable)
        try:
            reply = WireReply.model_validate_json(response.content)
        except ValidationError as failure:
            raise ModelError(_NO_COMPLETION, is_retryable=True) from failure
        if reply.choices is None:
            raise ModelError(_NO_COMPLETION, is_retryable=True)
        return ChatReply(
            text=reply.text or "",
            model=reply.model or self._model,
            usage=reply.usage or Usage(calls=1),
            finish=reply.finish or "other",
        )

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
