"""Gemini as a policy, streamed: turns as model content, observations as user content."""

import json
from collections.abc import AsyncGenerator, Sequence

import httpx2
from google import genai
from google.genai import errors, types
from pydantic import SecretStr, ValidationError

from rubricem_agent.policy.base import ContextOverflow, Opening, Sampling
from rubricem_agent.policy.openai_compatible import says_overflow
from rubricem_agent.policy.text import Delta, Exchange, Service, TextConversation
from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.base import Finish, PassingModelError, Redactor, status_error
from rubricem_env.llm.gemini import read_retry_after
from rubricem_env.llm.usage import Usage
from rubricem_env.tools.render import estimate_tokens

_OVERFLOW = "exceeds the maximum number of tokens"
_STOPS = frozenset({"STOP", "FINISH_REASON_UNSPECIFIED"})


class GeminiPolicy:
    """One model of the Gemini API in text mode."""

    def __init__(self, client: "GeminiClient", service: Service) -> None:
        self._client = client
        self._service = service

    @property
    def name(self) -> str:
        return self._service.name

    def open(self, opening: Opening, *, sampling: Sampling, seed: int) -> TextConversation:
        settings = types.GenerateContentConfig(
            system_instruction=opening.system, temperature=sampling.temperature, seed=seed % (1 << 31)
        )
        return TextConversation(_Thread(self._client, opening.user, settings=settings), opening, service=self._service)

    def count_tokens(self, text: str) -> int:
        return estimate_tokens(text)

    async def aclose(self) -> None:
        await self._client.aclose()


class GeminiClient:
    """The library's client over a transport of our own: it switches to aiohttp wherever that is installed."""

    def __init__(self, model: str, client: genai.Client, *, transport: httpx2.AsyncClient, redactor: Redactor) -> None:
        self._model = model
        self._client = client
        self._transport = transport
        self._redactor = redactor

    @classmethod
    def connect(
        cls, model: str, key: SecretStr, *, base_url: str | None = None, timeout: float = 300.0
    ) -> "GeminiClient":
        """A model by name; `timeout` is in seconds."""
        transport = httpx2.AsyncClient(timeout=timeout, limits=httpx2.Limits(max_connections=None))
        options = types.HttpOptions(base_url=base_url, timeout=int(timeout * 1000), httpx_async_client=transport)
        client = genai.Client(api_key=key.get_secret_value(), vertexai=False, http_options=options)
        return cls(model, client, transport=transport, redactor=Redactor([key]))

    async def stream(
        self, contents: Sequence[types.Content], settings: types.GenerateContentConfig
    ) -> AsyncGenerator[Delta, None]:
        """The deltas of one stream.

        Raises:
            ContextOverflow: the contents do not fit.
            PassingModelError: the same request may succeed later.
            ModelError: it will not.
        """
        has_ended = False
        try:
            chunks = await self._client.aio.models.generate_content_stream(
                model=self._model, contents=list(contents), config=settings
            )
            async for chunk in chunks:
                delta = _delta(chunk)
                has_ended = has_ended or delta.finish is not None
                yield delta
        except errors.APIError as failure:
            # Not from the failure: it holds the whole reply.
            raise self._refusal(failure) from None
        except httpx2.RequestError as failure:
            raise PassingModelError(f"no answer: {type(failure).__name__}: {failure}") from failure
        except (errors.UnknownApiResponseError, json.JSONDecodeError, ValidationError):
            # Not from the failure: it quotes what came, which may hold the key.
            raise PassingModelError("the server streamed what is no reply of the Gemini API") from None
        if not has_ended:
            # A turn that the connection cut off is no turn that the policy ended.
            raise PassingModelError("the stream broke off before its end")

    async def aclose(self) -> None:
        """Close the connections; the client cannot be used afterwards."""
        await self._client.aio.aclose()
        await self._transport.aclose()

    def _refusal(self, failure: errors.APIError) -> ModelError:
        said = self._redactor.redact(failure.message or "")
        if failure.code == 400 and (_OVERFLOW in said or says_overflow(said)):
            return ContextOverflow(f"the conversation no longer fits the model's context: {said[:300]}")
        return status_error(failure.code, said, retry_after=read_retry_after(failure))


class _Thread:
    """One conversation as Gemini sees it."""

    def __init__(self, client: GeminiClient, user: str, *, settings: types.GenerateContentConfig) -> None:
        self._client = client
        self._user = user
        self._settings = settings

    def stream(self, exchanges: Sequence[Exchange], begun: str, *, max_tokens: int) -> AsyncGenerator[Delta, None]:
        """The next turn; nothing is ever `begun`, because no stop strings are sent."""
        contents = [_content("user", self._user)]
        for exchange in exchanges:
            contents += [_content("model", exchange.text), _content("user", exchange.observation)]
        settings = self._settings.model_copy(update={"max_output_tokens": max_tokens})
        return self._client.stream(contents, settings)


def _content(role: str, text: str) -> types.Content:
    return types.Content(role=role, parts=[types.Part(text=text or "(nothing)")])


def _delta(chunk: types.GenerateContentResponse) -> Delta:
    candidate = chunk.candidates[0] if chunk.candidates else None
    parts = (candidate.content.parts if candidate and candidate.content else None) or []
    text = "".join(part.text for part in parts if part.text and not part.thought)
    return Delta(text, _usage(chunk.usage_metadata), _finish(chunk, candidate))


def _usage(metadata: types.GenerateContentResponseUsageMetadata | None) -> Usage | None:
    if metadata is None:
        return None
    return Usage(
        calls=1,
        input_tokens=metadata.prompt_token_count or 0,
        cached_tokens=metadata.cached_content_token_count or 0,
        output_tokens=(metadata.candidates_token_count or 0) + (metadata.thoughts_token_count or 0),
    )


def _finish(chunk: types.GenerateContentResponse, candidate: types.Candidate | None) -> Finish | None:
    if candidate is None:
        # A chunk of usage alone has no candidate either; a blocked prompt says why.
        return Finish.BLOCKED if chunk.prompt_feedback and chunk.prompt_feedback.block_reason else None
    if candidate.finish_reason is None:
        return None
    reason = candidate.finish_reason.value
    if reason == "MAX_TOKENS":
        return Finish.LENGTH
    return Finish.STOP if reason in _STOPS else Finish.BLOCKED
