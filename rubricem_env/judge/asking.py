"""How this project's judges ask a chat model: with which settings, how insistently, by which prompt."""

from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field

from rubricem_env.domain.base import Frozen
from rubricem_env.judge.prompts import Prompt
from rubricem_env.llm.base import ChatModel, ChatRequest
from rubricem_env.llm.retry import RetryPolicy, Timing
from rubricem_env.llm.structured import Insistence

PROPOSE = "propose"
SCORE = "score"
REFLECT = "reflect"


class AskSettings(Frozen):
    """How a judge model is asked."""

    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    max_output_tokens: Annotated[int, Field(ge=256)] = 16_384
    """Thoughts included, where the model has them."""
    retry: RetryPolicy = RetryPolicy()
    """Of proposals and full scorings: five retries (section C.4)."""
    fallback_retry: RetryPolicy = RetryPolicy(attempts=2, deadline=60.0)
    """Of the reduced, answer-only call, which comes after all those."""
    seed: int | None = None


class Asker(NamedTuple):
    """A model with the settings and the clock that it is asked by."""

    model: ChatModel
    settings: AskSettings
    timing: Timing

    def request(self, prompt: Prompt, blocks: str, *, schema: type[BaseModel], purpose: str) -> ChatRequest:
        """The system text from the prompt's file, the fenced blocks as the user's text."""
        return ChatRequest(
            prompt=blocks,
            system=prompt.text,
            schema=schema,
            purpose=purpose,
            temperature=self.settings.temperature,
            max_output_tokens=self.settings.max_output_tokens,
            seed=self.settings.seed,
        )

    @property
    def insistence(self) -> Insistence:
        return Insistence(self.settings.retry, self.timing)

    @property
    def once(self) -> Insistence:
        """One try, within the time of the fallback."""
        return Insistence(self.settings.fallback_retry.model_copy(update={"attempts": 1}), self.timing)

    @property
    def last_insistence(self) -> Insistence:
        return Insistence(self.settings.fallback_retry, self.timing)
