"""A search engine as a tool: typed failures, retries, limits, a circuit breaker and a budget.

`Backend` is one engine, which tries once. `GuardedTool` adds everything else and never raises a failure of the backend.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Protocol

from pydantic import Field

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import BoundaryError, ToolError, boundary
from rubricem_env.domain.trajectory import ToolCall, ToolResult, ToolStatus
from rubricem_env.llm.keys import Redactor
from rubricem_env.llm.limiter import Limiter, LimiterProtocol, Rates
from rubricem_env.llm.retry import RETRYABLE_STATUS, RetryPolicy, call_with_retry
from rubricem_env.llm.timing import Timing
from rubricem_env.llm.usage import Meter, SpendLimitReached, Usage
from rubricem_env.tools.base import FunctionTool, Tool, redacted
from rubricem_env.tools.spec import ToolSpec

_STATUSES = {408: ToolStatus.TIMEOUT, 429: ToolStatus.RATE_LIMITED, 504: ToolStatus.TIMEOUT}
_MEANINGS = {401: "it refuses the key", 403: "it refuses the key or the request", 429: "too many requests"}
_OUT_OF_MONEY = frozenset({402, 432, 433})
"""432 and 433 are Tavily's."""
_OUT_OF_MONEY_WORDS = re.compile("not enough credits|insufficient budget|quota_limited", re.IGNORECASE)
"""In the refusals of Serper (400), OpenAlex and Brave (429)."""
_MAX_MESSAGE = 300


class ToolFailure(ToolError):
    """A failure of a backend whose reason is known."""

    def __init__(
        self,
        message: str,
        *,
        status: ToolStatus = ToolStatus.ERROR,
        is_retryable: bool = False,
        retry_after: float | None = None,
        is_out_of_money: bool = False,
    ) -> None:
        super().__init__(message, is_retryable=is_retryable, retry_after=retry_after)
        self.status = status
        self.is_out_of_money = is_out_of_money


def http_failure(backend: str, status: int, *, said: str = "", retry_after: float | None = None) -> ToolFailure:
    """The failure for an HTTP status other than success."""
    detail = f" ({said.strip()[:200]})" if said.strip() else ""
    if status in _OUT_OF_MONEY or _OUT_OF_MONEY_WORDS.search(said):
        message = f"{backend} gave no results: its account is out of money or over its limit ({status}){detail}."
        return ToolFailure(message, is_out_of_money=True)
    reason = f"{_MEANINGS[status]} ({status})" if status in _MEANINGS else f"it answered {status}"
    return ToolFailure(
        f"{backend} gave no results: {reason}{detail}.",
        status=_STATUSES.get(status, ToolStatus.ERROR),
        is_retryable=status in RETRYABLE_STATUS,
        retry_after=retry_after,
    )


def malformed_reply(backend: str) -> ToolFailure:
    """The backend answered with success, but not in its format."""
    return ToolFailure(f"{backend} answered in an unknown format; the reply cannot be read.", is_retryable=True)


def result_of_failure(failure: BoundaryError) -> ToolResult:
    """The typed result of a failed call, in one sentence."""
    if isinstance(failure.__cause__, TimeoutError) and not isinstance(failure, ToolFailure):
        return ToolResult(status=ToolStatus.TIMEOUT, message="the tool did not answer in time; try again or continue.")
    line = " ".join(str(failure).split())
    return ToolResult(
        status=failure.status if isinstance(failure, ToolFailure) else ToolStatus.ERROR,
        message=line if len(line) <= _MAX_MESSAGE else line[: _MAX_MESSAGE - 1] + "\u2026",
    )


class CircuitBreaker:
    """Stops calls to a backend that keeps failing, or whose account is out of money.

    Closed, all calls pass; open, none. After the cooldown one call may try, and its outcome decides.
    """

    def __init__(self, *, failures: int | None, cooldown: float, backend: str, clock: Callable[[], float]) -> None:
        """It opens after `failures` in a row, retries included, for `cooldown` seconds; None never opens it."""
        self._limit = failures
        self._cooldown = cooldown
        self._backend = backend
        self._clock = clock
        self._failures = 0
        self._opened_at: float | None = None
        self._reason = ""
        self._is_probing = False

    def __enter__(self) -> None:
        """Let a call pass, and learn from its outcome. One that is cancelled or not made says nothing.

        Raises:
            ToolFailure: the breaker is open, or another call is probing the backend.
        """
        if self._opened_at is not None:
            left = self._opened_at + self._cooldown - self._clock()
            if left > 0 or self._is_probing:
                raise ToolFailure(
                    f"{self._backend} {self._reason} and is not called for {max(left, 1):.0f} s more; use another tool "
                    "or what you have."
                )
            self._is_probing = True

    def __exit__(self, kind: object, failure: BaseException | None, trace: object) -> None:
        if failure is None:
            self._failures, self._opened_at = 0, None
        elif isinstance(failure, ToolError):
            self._learn(failure)
        self._is_probing = False

    def _learn(self, failure: ToolError) -> None:
        # A refusal and a 429 come from a server that works: neither means that the backend is down.
        is_alive = isinstance(failure, ToolFailure) and (
            not failure.is_retryable or failure.status is ToolStatus.RATE_LIMITED
        )
        is_broke = isinstance(failure, ToolFailure) and failure.is_out_of_money
        self._failures = 0 if is_alive else self._failures + 1
        is_down = self._failures > 0 and (self._is_probing or self._failures >= (self._limit or 0))
        self._reason = f"failed {self._failures} times in a row" if is_down else "is out of money or over its limit"
        self._opened_at = self._clock() if self._limit is not None and (is_down or is_broke) else None


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


class GuardSettings(Frozen):
    """Limits, retries and circuit breaker of one backend."""

    rates: Rates = Rates(concurrency=64)
    retry: RetryPolicy = RetryPolicy(attempts=4, initial_delay=0.5, max_delay=20.0, deadline=60.0)
    """Its deadline is the total time of a call from the moment it is made: waiting for a slot does not count."""
    timeout: Annotated[float, Field(gt=0)] = 30.0
    """Seconds for one try."""
    breaker_failures: Annotated[int, Field(ge=1)] | None = 8
    """Failures in a row that open the breaker. None never opens it, for tools whose calls go to different servers."""
    breaker_cooldown: Annotated[float, Field(gt=0)] = 30.0
    """Seconds."""


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
        backend, expected, name = self._backend, self._backend.expected, self.spec.name
        async with self._limiter.slot(expected.input_tokens):
            with (
                self._breaker,
                self._budget.reserve(name, backend.model, expected=expected, fee=backend.fee) as record,
                boundary(ToolError, f"ask {name}"),
            ):
                try:
                    async with asyncio.timeout(self._settings.timeout):
                        result, usage = await backend.answer(call)
                except TimeoutError as late:
                    message = f"{name} did not answer within {self._settings.timeout:g} s; try again or continue."
                    raise ToolFailure(message, status=ToolStatus.TIMEOUT, is_retryable=True) from late
                record(usage)
                return result


_PASSED_ON = frozenset({ToolStatus.ERROR, ToolStatus.TIMEOUT, ToolStatus.RATE_LIMITED})


def in_order(tools: Sequence[Tool]) -> Tool:
    """One tool of several engines: the next is asked where one is out of money, down or too busy."""

    async def call(request: ToolCall) -> ToolResult:
        failures = []
        for tool in tools:
            result = await tool.call(request)
            if result.status not in _PASSED_ON:
                return result
            failures.append(result.message)
        return result.model_copy(update={"message": " ".join(failures)[:_MAX_MESSAGE]})

    return FunctionTool(tools[0].spec, call) if len(tools) > 1 else tools[0]
