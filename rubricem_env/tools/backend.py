"""A search engine behind a tool, and what stands between it and the episode: limits, retries, breaker, budget."""

import asyncio
from typing import Annotated, NamedTuple, Protocol

from pydantic import Field

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import BoundaryError, ToolError, boundary
from rubricem_env.domain.tool import ToolCall, ToolResult, ToolStatus
from rubricem_env.llm.limiter import Limiter, Rates
from rubricem_env.llm.retry import RetryPolicy, Timing, call_with_retry
from rubricem_env.llm.usage import Ceilings
from rubricem_env.tools.breaker import BreakerSettings, CircuitBreaker
from rubricem_env.tools.budget import Cost, ToolBudget
from rubricem_env.tools.failure import ToolFailure, advise_on_tool_failure, result_of_failure
from rubricem_env.tools.spec import ToolSpec


class Answer(NamedTuple):
    """What a backend found, and what that cost."""

    result: ToolResult
    cost: Cost = Cost()


class Backend(Protocol):
    """One search engine. Tries once; a failure is raised as `ToolFailure`."""

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def expected_cost(self) -> Cost:
        """The most that one call is likely to use."""
        ...

    async def answer(self, call: ToolCall) -> Answer: ...

    async def aclose(self) -> None: ...


class GuardSettings(Frozen):
    """How one backend is treated."""

    rates: Rates = Rates(concurrency=64)
    retry: RetryPolicy = RetryPolicy(attempts=4, initial_delay=0.5, max_delay=20.0, deadline=60.0)
    """Its deadline is the total time of a call, waits for a slot included."""
    timeout: Annotated[float, Field(gt=0)] = 30.0
    """Seconds for one try."""
    breaker: BreakerSettings = BreakerSettings()


class GuardedTool:
    """A backend as a tool: every failure is a typed result, nothing is asked beyond limits and budget."""

    def __init__(self, backend: Backend, settings: GuardSettings, *, budget: ToolBudget, timing: Timing) -> None:
        self._backend = backend
        self._settings = settings
        self._budget = budget
        self._timing = timing
        self._limiter = Limiter(settings.rates, timing)
        self._breaker = CircuitBreaker(settings.breaker, backend=backend.spec.name, clock=timing.clock)

    @classmethod
    def unbounded(cls, backend: Backend, timing: Timing) -> "GuardedTool":
        """With the default limits and a budget of its own that stops nothing."""
        return cls(backend, GuardSettings(), budget=ToolBudget(Ceilings()), timing=timing)

    @property
    def spec(self) -> ToolSpec:
        return self._backend.spec

    async def call(self, call: ToolCall) -> ToolResult:
        """Ask the backend, again where that helps."""
        try:
            return await call_with_retry(
                lambda: self._try_once(call),
                doing=f"ask {self.spec.name}",
                error=ToolError,
                advise=advise_on_tool_failure,
                policy=self._settings.retry,
                timing=self._timing,
            )
        except BoundaryError as failure:
            return result_of_failure(failure)

    async def aclose(self) -> None:
        await self._backend.aclose()

    async def _try_once(self, call: ToolCall) -> ToolResult:
        expected = self._backend.expected_cost
        async with self._limiter.slot(expected.tokens):
            self._breaker.admit()
            try:
                with self._budget.reserve(expected) as charge:
                    answer = await self._watched(call)
                    charge.record(answer.cost)
                    return answer.result
            finally:
                self._breaker.give_up()

    async def _watched(self, call: ToolCall) -> Answer:
        """One try whose outcome the breaker learns."""
        try:
            with boundary(ToolError, f"ask {self.spec.name}"):
                answer = await self._timed(call)
        except ToolError as failure:
            report = self._breaker.fail if _is_down(failure) else self._breaker.succeed
            report()
            raise
        self._breaker.succeed()
        return answer

    async def _timed(self, call: ToolCall) -> Answer:
        try:
            async with asyncio.timeout(self._settings.timeout):
                return await self._backend.answer(call)
        except TimeoutError as late:
            message = f"{self.spec.name} did not answer within {self._settings.timeout:g} s; try again or go on."
            raise ToolFailure(message, status=ToolStatus.TIMEOUT, passes=True) from late


def _is_down(failure: ToolError) -> bool:
    """A refusal is an answer, and 429 comes from a server that is well: neither means that the backend is down."""
    if not isinstance(failure, ToolFailure):
        return True
    return failure.passes and failure.status is not ToolStatus.RATE_LIMITED
