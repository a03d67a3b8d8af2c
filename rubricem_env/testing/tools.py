"""Tools that do as they are told, and time that passes on command."""

import asyncio
from collections.abc import Callable

import numpy as np

from rubricem_env.domain.tool import Snippet, ToolCall, ToolResult, ToolStatus
from rubricem_env.llm.retry import Timing
from rubricem_env.tools.backend import Answer
from rubricem_env.tools.budget import Cost
from rubricem_env.tools.catalogue import GOOGLE_SEARCH_SPEC
from rubricem_env.tools.failure import ToolFailure
from rubricem_env.tools.spec import ToolSpec

FOUND = ToolResult(
    status=ToolStatus.OK,
    summary="The Tall Fox is 60 m wide.",
    snippets=(Snippet(text="60 m", title="Tall Fox", url="https://almanac.example/d1"),),
)


class ManualTime:
    """A clock that moves only while somebody sleeps, at once and for everybody."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def timing(self) -> Timing:
        return Timing(lambda: self.now, self.sleep, np.random.default_rng(0))

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class ScriptedBackend:
    """A search engine that gives its outcomes in order, the last one for ever, and counts its calls."""

    def __init__(
        self,
        *outcomes: ToolResult | ToolFailure,
        spec: ToolSpec = GOOGLE_SEARCH_SPEC,
        cost: Cost | None = None,
        delay: float = 0.0,
    ) -> None:
        self._outcomes = outcomes or (FOUND,)
        self.spec = spec
        self.expected_cost = cost or Cost()
        self._delay = delay
        self.calls: list[ToolCall] = []

    async def answer(self, call: ToolCall) -> Answer:
        outcome = self._outcomes[min(len(self.calls), len(self._outcomes) - 1)]
        self.calls.append(call)
        await asyncio.sleep(self._delay)
        if isinstance(outcome, ToolFailure):
            raise outcome
        return Answer(outcome, self.expected_cost)

    async def aclose(self) -> None:
        """Nothing is open."""


class ScriptedTool:
    """A tool that answers each call by a function of it."""

    def __init__(
        self,
        answer: Callable[[ToolCall], ToolResult] = lambda _: FOUND,
        *,
        spec: ToolSpec = GOOGLE_SEARCH_SPEC,
        delay: float = 0.0,
    ) -> None:
        self._answer = answer
        self.spec = spec
        self._delay = delay
        self.calls: list[ToolCall] = []

    async def call(self, call: ToolCall) -> ToolResult:
        self.calls.append(call)
        await asyncio.sleep(self._delay)
        return self._answer(call)
