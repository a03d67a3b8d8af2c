"""A chat model under one limiter and one meter: what every model that costs something is wrapped in."""

from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.base import ChatModel, ChatReply, ChatRequest, PassingModelError
from rubricem_env.llm.limiter import Limiter
from rubricem_env.llm.secrets import Redactor
from rubricem_env.llm.usage import Meter, Usage

CHARS_PER_TOKEN = 3
"""Deliberately low, so that what is held back for a call is more than it will use."""


class MeteredModel:
    """Limits, books and redacts; it does not retry, so that whoever asks decides how long to insist."""

    def __init__(self, model: ChatModel, *, limiter: Limiter, meter: Meter, redactor: Redactor | None = None) -> None:
        self._model = model
        self._limiter = limiter
        self._redactor = redactor or Redactor()
        self.meter = meter

    @property
    def name(self) -> str:
        return self._model.name

    async def complete(self, request: ChatRequest) -> ChatReply:
        """One call; known secrets never reach the message of an error.

        Raises:
            ModelError: as the model says.
            CeilingReached: the call might pass a ceiling, and was not made.
        """
        expected = expected_usage(request)
        async with self._limiter.slot(expected.tokens):
            with self.meter.reserve(request.purpose, self.name, expected=expected) as receipt:
                reply = await self._complete(request)
                receipt.record(reply.usage)
                return reply

    async def aclose(self) -> None:
        await self._model.aclose()

    async def _complete(self, request: ChatRequest) -> ChatReply:
        try:
            return await self._model.complete(request)
        except PassingModelError as failure:
            raise PassingModelError(self._redactor.redact(str(failure)), retry_after=failure.retry_after) from None
        except ModelError as failure:
            raise ModelError(self._redactor.redact(str(failure))) from None


def expected_usage(request: ChatRequest) -> Usage:
    """The most that a request is likely to use: its text, and all the output that it allows."""
    characters = len(request.prompt) + len(request.system)
    return Usage(calls=1, input_tokens=characters // CHARS_PER_TOKEN + 1, output_tokens=request.max_output_tokens)
