"""A chat model without a model: replies from a list or a function, for tests, dry runs and rehearsed attacks."""

import inspect
from collections.abc import Awaitable, Callable, Iterable

from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.base import ChatReply, ChatRequest
from rubricem_env.llm.usage import Usage

Reply = str | ChatReply | ModelError
Answer = Callable[[ChatRequest], Reply | Awaitable[Reply]]


class ScriptedModel:
    """Answers with what it was given, in order or by function; a `ModelError` in its place is raised."""

    def __init__(self, answer: Answer | Iterable[Reply], *, name: str = "scripted") -> None:
        self._answer = answer
        self._replies = None if callable(answer) else iter(answer)
        self._name = name
        self.requests: list[ChatRequest] = []

    @property
    def name(self) -> str:
        return self._name

    async def complete(self, request: ChatRequest) -> ChatReply:
        """The next reply.

        Raises:
            ModelError: the script holds one here, or has come to its end.
        """
        self.requests.append(request)
        reply = await self._next(request)
        if isinstance(reply, ModelError):
            raise reply
        if isinstance(reply, ChatReply):
            return reply
        return ChatReply(text=reply, model=self._name, usage=_count(request, reply))

    async def aclose(self) -> None:
        return None

    async def _next(self, request: ChatRequest) -> Reply:
        if self._replies is not None:
            return next(self._replies, ModelError("the script has no further reply"))
        if not callable(self._answer):
            raise AssertionError("unreachable: an answer is a function or an iterable")
        reply = self._answer(request)
        return await reply if inspect.isawaitable(reply) else reply


def _count(request: ChatRequest, reply: str) -> Usage:
    """Four characters a token: enough to see money move in a rehearsal."""
    read = (len(request.prompt) + len(request.system)) // 4
    return Usage(calls=1, input_tokens=read, output_tokens=len(reply) // 4)
