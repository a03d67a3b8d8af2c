"""What the project asks of a chat model: one request, one reply, what it used, and failures that say whether they pass."""

from enum import StrEnum
from typing import NamedTuple, Protocol

from pydantic import BaseModel

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import BoundaryError, ModelError
from rubricem_env.llm.retry import RETRYABLE_STATUS, RetryAdvice
from rubricem_env.llm.usage import Usage

_UNAUTHORIZED = (401, 403)


class PassingModelError(ModelError):
    """A model failure after which the same request may succeed; the server may have said when."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Finish(StrEnum):
    """Why a reply ends."""

    STOP = "stop"
    LENGTH = "length"
    """The token limit cut it off."""
    BLOCKED = "blocked"
    """The server refused to write it."""
    OTHER = "other"


class ChatRequest(NamedTuple):
    """One question to a model."""

    prompt: str
    system: str = ""
    schema: type[BaseModel] | None = None
    """The shape of the JSON reply; None asks for plain text. Servers are told, and never believed."""
    purpose: str = "chat"
    """The phase that its cost is booked under."""
    temperature: float = 0.0
    max_output_tokens: int = 8192
    seed: int | None = None


class ChatReply(Frozen):
    """What came back."""

    text: Text
    model: Text
    """As the server names it."""
    usage: Usage = Usage(calls=1)
    finish: Finish = Finish.STOP


class ChatModel(Protocol):
    """A model behind some server, or none. Safe to call many times at once on one event loop."""

    @property
    def name(self) -> str: ...

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Answer one request, without retries.

        Raises:
            PassingModelError: the same request may succeed later.
            ModelError: it will not.
        """
        ...

    async def aclose(self) -> None: ...


def advise_on_model_error(failure: BoundaryError) -> RetryAdvice | None:
    """Try again after what may pass, and after nothing else."""
    return RetryAdvice(failure.retry_after) if isinstance(failure, PassingModelError) else None


def status_error(status: int, message: str, *, retry_after: float | None = None, key_variable: str = "") -> ModelError:
    """The typed failure for an HTTP status; a key that is refused is answered with the variable that it stands in."""
    said = f"the server answered {status}: {message.strip()[:500] or 'no message'}"
    if status in _UNAUTHORIZED and key_variable:
        said = f"{said.rstrip('.')}. Set {key_variable} in the environment to a key that this server takes."
    return PassingModelError(said, retry_after=retry_after) if status in RETRYABLE_STATUS else ModelError(said)
