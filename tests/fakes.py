"""Fakes that only our own tests need: a clock, a chat model, a search engine, an embedder, rubrics, reflections.

`rubricem_env.testing` has those for users.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from rubricem_env.domain.base import Stage
from rubricem_env.domain.errors import ModelError
from rubricem_env.domain.judgement import Polarity, Provenance, Rubric
from rubricem_env.domain.reflection import Reflection, ReflectionScore
from rubricem_env.domain.trajectory import ToolCall, ToolResult, query_key
from rubricem_env.llm.chat import ChatReply, ChatRequest
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.llm.usage import Usage
from rubricem_env.testing.episodes import FOUND
from rubricem_env.tools.failures import ToolFailure
from rubricem_env.tools.spec import GOOGLE_SEARCH_SPEC, ToolSpec


class ManualTime:
    """A clock that moves only when a caller sleeps; sleeping takes no real time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def timing(self) -> Timing:
        return Timing(lambda: self.now, self.sleep, np.random.default_rng(0))

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class PlaneEmbedder:
    """Questions are angles: "at 30" lies 30 degrees from "at 0", so the cosine of the two is that of 30 degrees."""

    name = "plane"
    dimension = 2

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        angles = np.radians([float(text.split()[1]) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def make_reflection(
    question: str, *, rubrics: str = "States each figure with its unit.", takeaways: str = "", step: int = 0
) -> Reflection:
    """A scored reflection that a bank lets in; its takeaways name the question unless given."""
    return Reflection(
        query_key=query_key(question),
        question=question,
        rubrics=rubrics,
        takeaways=takeaways or f"Begin with {question}.",
        score=ReflectionScore(diagnosis=0.5, specificity=1.0, scope=0.0),
        provenance=Provenance(step=step, model="tiny", prompt_hash="abc"),
    )


def rubric(
    text: str, stage: Stage = Stage.ANSWER, *, weight: float = 1.0, negative: bool = False, persistent: bool = False
) -> Rubric:
    """A rubric whose title and description are the text."""
    polarity: Polarity = "negative" if negative else "positive"
    return Rubric(stage=stage, title=text, description=text, polarity=polarity, weight=weight, persistent=persistent)


Reply = str | ChatReply | ModelError
Answer = Callable[[ChatRequest], Reply | Awaitable[Reply]]


class ScriptedModel:
    """Returns scripted replies, in order or by function; a `ModelError` in the script is raised."""

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
            ModelError: the script has one here, or is at its end.
        """
        self.requests.append(request)
        if self._replies is not None:
            reply = next(self._replies, ModelError("the script has no further reply"))
        else:
            assert callable(self._answer)
            given = self._answer(request)
            reply = await given if inspect.isawaitable(given) else given
        if isinstance(reply, ModelError):
            raise reply
        if isinstance(reply, ChatReply):
            return reply
        # Four characters a token: enough to see costs in a rehearsal.
        read = (len(request.prompt) + len(request.system)) // 4
        usage = Usage(calls=1, input_tokens=read, output_tokens=len(reply) // 4)
        return ChatReply(text=reply, model=self._name, usage=usage)

    async def aclose(self) -> None:
        return None


class ScriptedBackend:
    """A search engine that returns its outcomes in order, then repeats the last one, and records its calls."""

    def __init__(
        self,
        *outcomes: ToolResult | ToolFailure,
        spec: ToolSpec = GOOGLE_SEARCH_SPEC,
        fee: float = 0.0,
        delay: float = 0.0,
    ) -> None:
        self._outcomes = outcomes or (FOUND,)
        self.spec = spec
        self.model = ""
        self.fee = fee
        self.expected = Usage(calls=1)
        self.delay = delay
        self.calls: list[ToolCall] = []

    async def answer(self, call: ToolCall) -> tuple[ToolResult, Usage]:
        outcome = self._outcomes[min(len(self.calls), len(self._outcomes) - 1)]
        self.calls.append(call)
        await asyncio.sleep(self.delay)
        if isinstance(outcome, ToolFailure):
            raise outcome
        return outcome, self.expected

    async def aclose(self) -> None:
        """Nothing is open."""
