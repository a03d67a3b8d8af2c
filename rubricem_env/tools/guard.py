"""A search engine as a tool: retries, limits, a circuit breaker and a budget.

`Backend` is one engine, which tries once. `GuardedTool` adds everything else and never raises a failure of the backend.
"""

import asyncio
from typing import Annotated, Protocol

from pydantic import Field

from rubricem_env.domain.base import PositiveCount
from rubricem_env.domain.errors import BoundaryError, ToolError, boundary
from rubricem_env.domain.settings import Settings
from rubricem_env.domain.trajectory import ToolCall, ToolResult, ToolStatus
from rubricem_env.llm.keys import Redactor
from rubricem_env.llm.limits.limiter import Limiter, LimiterProtocol, Rates
from rubricem_env.llm.limits.retry import RetryPolicy, call_with_retry
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.llm.usage import Meter, SpendLimitReached, Usage
from rubricem_env.tools.base import redacted
from rubricem_env.tools.circuit_breaker import CircuitBreaker
from rubricem_env.tools.failures import ToolFailure, result_of_failure
from rubricem_env.tools.spec import ToolSpec


class Backend(Protocol):
    """One search engine. Tries once; a failure is raised as `ToolFailure`."""

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def model(self) -> str:
        """The language model whose tokens are paid for; "" if there is none."""
        ...

    @property
    def fee(self) -> float:
        """Dollars for one call, besides tokens."""
        ...

    @property
    def expected(self) -> Usage:
        """The most that one call is likely to use; the rate limit counts its input tokens."""
        ...

    async def answer(self, call: ToolCall) -> tuple[ToolResult, Usage]: ...

    async def aclose(self) -> None: ...


class GuardSettings(Settings):
    """Limits, retries and circuit breaker of one backend."""

    rates: Rates = Rates(concurrency=64)
    retry: RetryPolicy = RetryPolicy(attempts=4, initial_delay=0.5, max_delay=20.0, deadline=60.0)
    """Its deadline is the total time of a call from the moment it is made: waiting for a slot does not count."""
    timeout: Annotated[float, Field(gt=0)] = 30.0
    """How many seconds one try may take."""
    breaker_failures: PositiveCount | None = 8
    """Failures in a row that open the breaker. None never opens it, for tools whose calls go to different servers."""
    breaker_cooldown: Annotated[float, Field(gt=0)] = 30.0
    """How many seconds the breaker stays open."""


class GuardedTool:
    """A backend as a tool: every failure is a typed result, and limits and budget are kept.

    `budget` is shared by all tools of a run and counts each try; cached calls never reach it. `redactor` removes known
    secrets from results, because servers echo what they are sent.
    """

    def __init__(
        self,
        backend: Backend,
        settings: GuardSettings | None = None,
        *,
        timing: Timing,
        budget: Meter | None = None,
        redactor: Redactor = str,
        limiter: LimiterProtocol | None = None,
    ) -> None:
        """Without a `limiter`, the rates of the settings hold for this tool alone."""
        self.spec = backend.spec
        self._backend = backend
        self._settings = settings or GuardSettings()
        self._budget = budget or Meter()
        self._redactor = redactor
        self._timing = timing
        self._limiter = limiter or Limiter(self._settings.rates, timing)
        self._breaker = CircuitBreaker(
            failures=self._settings.breaker_failures,
            cooldown=self._settings.breaker_cooldown,
            backend=backend.spec.name,
            clock=timing.clock,
        )

    async def call(self, call: ToolCall) -> ToolResult:
        """Call the backend, with retries."""
        try:
            result = await call_with_retry(
                lambda: self._try_once(redacted(call, self._redactor)),
                doing=f"ask {self.spec.name}",
                error=ToolError,
                policy=self._settings.retry,
                timing=self._timing,
                longest=self._settings.timeout,
            )
        except BoundaryError as failure:
            result = result_of_failure(failure)
        except SpendLimitReached:
            message = "the run's budget for tools is used up; answer from what you have."
            result = ToolResult(status=ToolStatus.BLOCKED, message=message)
        return redacted(result, self._redactor)

    async def aclose(self) -> None:
        await self._backend.aclose()

    async def _try_once(self, call: ToolCall) -> ToolResult:
        """One try within the time limit; its outcome is reported to the breaker."""
        backend = self._backend
        expected = self._backend.expected
        name = self.spec.name
        async with self._limiter.slot(expected.input_tokens):
            with self._breaker:
                async with self._budget.reserve(name, backend.model, expected=expected, fee=backend.fee) as record:
                    with boundary(ToolError, f"ask {name}"):
                        result, usage = await self._answer_in_time(call)
                    record(usage)
                    return result

    async def _answer_in_time(self, call: ToolCall) -> tuple[ToolResult, Usage]:
        try:
            async with asyncio.timeout(self._settings.timeout):
                return await self._backend.answer(call)
        except TimeoutError as late:
            message = f"{self.spec.name} did not answer within {self._settings.timeout:g} s; try again or continue."
            raise ToolFailure(message, status=ToolStatus.TIMEOUT, is_retryable=True) from late
