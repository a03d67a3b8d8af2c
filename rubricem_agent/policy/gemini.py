"""Gemini as a policy, streamed: turns as model content, observations as user content."""

from collections.abc import AsyncGenerator, Sequence
from functools import partial

from google.genai import types
from pydantic import SecretStr

from rubricem_agent.policy.base import Opening
from rubricem_agent.policy.text import Exchange, Service, TextConversation
from rubricem_env.domain.errors import ModelError
from rubricem_env.env.view import NOTHING
from rubricem_env.llm.chat import ABORTED, Delta, Effort
from rubricem_env.llm.gemini import open_client, read_candidate, read_usage, thinking_of, typed_failures
from rubricem_env.llm.keys import redactor_of
from rubricem_env.tools.render import estimate_tokens
from rubricem_records.rollouts.sampling import Sampling


class GeminiPolicy:
    """One model of the Gemini API in text mode."""

    def __init__(
        self,
        model: str,
        key: SecretStr,
        *,
        service: Service,
        base_url: str | None = None,
        timeout: float = 300.0,
        effort: Effort = "",
    ) -> None:
        """`timeout` is in seconds."""
        self._model = model
        self._client, self._transport = open_client(key, base_url=base_url, timeout=timeout)
        self._redactor = redactor_of([key])
        self._service = service
        self._thinking = thinking_of(effort)
        self.name = service.name

    def open(self, opening: Opening, *, sampling: Sampling, seed: int) -> TextConversation:
        settings = types.GenerateContentConfig(
            system_instruction=opening.system,
            temperature=sampling.temperature,
            top_p=sampling.top_p if sampling.top_p < 1 else None,
            seed=seed % (1 << 31),
            thinking_config=self._thinking,
        )
        return TextConversation(partial(self._stream, opening.user, settings), opening, service=self._service)

    def count_tokens(self, text: str) -> int:
        return estimate_tokens(text)

    async def aclose(self) -> None:
        """Close the connections; the policy cannot be used afterwards."""
        await self._client.aio.aclose()
        await self._transport.aclose()

    async def _stream(
        self,
        user: str,
        settings: types.GenerateContentConfig,
        exchanges: Sequence[Exchange],
        begun: str,
        max_tokens: int,
    ) -> AsyncGenerator[Delta, None]:
        """The next turn. `begun` is always empty, because no stop strings are sent."""
        del begun
        contents = [_content("user", user)]
        for turn, observation, _ in exchanges:
            contents += [_content("model", turn), _content("user", observation)]
        has_ended = has_text = has_thought = False
        with typed_failures(self._redactor):
            chunks = await self._client.aio.models.generate_content_stream(
                model=self._model,
                contents=list(contents),
                config=settings.model_copy(update={"max_output_tokens": max_tokens}),
            )
            async for chunk in chunks:
                text, finish, thought = read_candidate(chunk)
                if finish == "other":
                    raise ModelError(ABORTED, is_retryable=True)
                has_ended = has_ended or finish is not None
                has_text = has_text or bool(text)
                has_thought = has_thought or bool(thought)
                if finish in ("stop", "length") and has_thought and not has_text:
                    raise ModelError("the server streamed a thought and no text", is_retryable=True)
                yield Delta(text, read_usage(chunk.usage_metadata), finish, thought=thought)
        if not has_ended:
            # The connection ended the turn, not the policy.
            raise ModelError("the stream ended before its end mark", is_retryable=True)


def _content(role: str, text: str) -> types.Content:
    return types.Content(role=role, parts=[types.Part(text=text or NOTHING)])
