"""A backend's failure with its status, and the result that it becomes.

A circuit breaker: after so many failures in a row a backend is left alone for a while.

What tools may spend in a run: calls and money, with a hard stop before either is passed.

A search engine behind a tool, and what stands between it and the episode: limits, retries, breaker, budget.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, NamedTuple, Protocol

from pydantic import Field

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import BoundaryError, FileFormatError, ToolError, boundary
from rubricem_env.domain.trajectory import ToolCall, ToolResult, ToolStatus
from rubricem_env.llm.limits import RETRYABLE_STATUS, Limiter, Rates, RetryAdvice, RetryPolicy, Timing, call_with_retry
from rubricem_env.llm.usage import Ceilings
from rubricem_env.tools.spec import ToolSpec

_STATUSES = {
    408: ToolStatus.TIMEOUT,
    429: ToolStatus.RATE_LIMITED,
    503: ToolStatus.ERROR,
    504: ToolStatus.TIMEOUT,
}
_MAX_MESSAGE = 300


class ToolFailure(ToolError):
    """What went wrong with a backend, whether it may pass, and when to come back."""

    def __init__(
        self,
        message: str,
        *,
        status: ToolStatus = ToolStatus.ERROR,
        passes: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.passes = passes
        self.retry_after = retry_after


def http_failure(backend: str, status: int, *, said: str = "", retry_after: float | None = None) -> ToolFailure:
    """The failure for an HTTP status that is no success."""
    detail = f" ({said.strip()[:_MAX_MESSAGE]})" if said.strip() else ""
    meaning = {401: "it refuses the key", 403: "it refuses the key or the request", 429: "too many requests"}.get(
        status
    )
    reason = f"{meaning} ({status})" if meaning else f"it answered {status}"
    return ToolFailure(
        f"{backend} gave no results: {reason}{detail}.",
        status=_STATUSES.get(status, ToolStatus.ERROR),
        passes=status in RETRYABLE_STATUS,
        retry_after=retry_after,
    )


def advise_on_tool_failure(failure: BoundaryError) -> RetryAdvice | None:
    """Try again after what may pass, and after nothing else."""
    return RetryAdvice(failure.retry_after) if isinstance(failure, ToolFailure) and failure.passes else None


def result_of_failure(failure: BoundaryError) -> ToolResult:
    """The typed result of a failed call, in one sentence."""
    status = ToolStatus.ERROR
    if isinstance(failure, ToolFailure):
        status = failure.status
    elif isinstance(failure.__cause__, TimeoutError):
        return ToolResult(status=ToolStatus.TIMEOUT, message="the tool did not answer in time; try again or go on.")
    return ToolResult(status=status, message=_one_line(str(failure)))


def malformed_reply(backend: str) -> ToolFailure:
    """The backend answered with success and with what is not its format."""
    return ToolFailure(f"{backend} answered with what is not its format; the reply cannot be read.", passes=True)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_MESSAGE else line[: _MAX_MESSAGE - 1] + "\u2026"


class BreakerSettings(Frozen):
    """When the breaker opens, and for how long."""

    failures: Annotated[int, Field(ge=1)] | None = 8
    """In a row, retries counted. None never opens it: where each call goes to another server, none speaks for the next."""
    cooldown: Annotated[float, Field(gt=0)] = 30.0
    """Seconds."""


class CircuitBreaker:
    """Closed, all calls pass; open, none; after the cooldown one call may try, and its outcome decides."""

    def __init__(self, settings: BreakerSettings, *, backend: str, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._backend = backend
        self._clock = clock
        self._failures = 0
        self._opened_at: float | None = None
        self._is_probing = False

    @property
    def is_open(self) -> bool:
        return self._opened_at is not None

    def admit(self) -> None:
        """Let a call pass.

        Raises:
            ToolFailure: the breaker is open, or another call is trying the backend out.
        """
        if self._opened_at is None:
            return
        left = self._opened_at + self._settings.cooldown - self._clock()
        if left > 0 or self._is_probing:
            raise ToolFailure(
                f"{self._backend} failed {self._failures} times in a row and is not asked for "
                f"{max(left, 1):.0f} s more; use another tool or what you have."
            )
        self._is_probing = True

    def succeed(self) -> None:
        """The backend is alive: it answered, if only to refuse."""
        self._failures = 0
        self._opened_at = None
        self._is_probing = False

    def fail(self) -> None:
        """The backend is down or does not answer."""
        self._failures += 1
        most = self._settings.failures
        if most is not None and (self._is_probing or self._failures >= most):
            self._opened_at = self._clock()
        self._is_probing = False

    def give_up(self) -> None:
        """The call was cancelled or not made: it says nothing about the backend, and another may try it out."""
        self._is_probing = False


class CallCost(NamedTuple):
    """What one call uses, or may use at most."""

    tokens: int = 0
    dollars: float = 0.0


class Charge:
    """Where a call under way writes what it cost; one that fails costs a call and no money."""

    def __init__(self) -> None:
        self.cost = CallCost()

    def record(self, cost: CallCost) -> None:
        self.cost = cost


class ToolBudget:
    """Shared by all tools of a run, on one event loop. Calls count whether they succeed or not; cached ones do not.

    Unlike the meter of models it counts flat fees, which most search engines charge.
    """

    def __init__(self, ceilings: Ceilings) -> None:
        self._ceilings = ceilings
        self.calls = 0
        self.tokens = 0
        self.dollars = 0.0
        self._held_tokens = 0
        self._held_dollars = 0.0

    @contextmanager
    def reserve(self, expected: CallCost) -> Iterator[Charge]:
        """Hold back the expected cost while a call runs, then book the real one.

        Raises:
            ToolFailure: before the call, when it might pass a ceiling.
        """
        self._refuse_beyond_ceilings(expected)
        self.calls += 1
        self._held_tokens += expected.tokens
        self._held_dollars += expected.dollars
        charge = Charge()
        try:
            yield charge
        finally:
            self._held_tokens -= expected.tokens
            self._held_dollars -= expected.dollars
            self.tokens += charge.cost.tokens
            self.dollars += charge.cost.dollars

    def _refuse_beyond_ceilings(self, expected: CallCost) -> None:
        committed = (
            ("calls", self.calls + 1, self._ceilings.calls),
            ("tokens", self.tokens + self._held_tokens + expected.tokens, self._ceilings.tokens),
            ("dollars", self.dollars + self._held_dollars + expected.dollars, self._ceilings.dollars),
        )
        for unit, needed, ceiling in committed:
            if ceiling is not None and needed > ceiling:
                raise ToolFailure(
                    f"the run's budget of {ceiling:g} {unit} for tools is used; answer from what you have.",
                    status=ToolStatus.BLOCKED,
                )

    def state_dict(self) -> dict[str, Any]:
        """What was spent, as JSON values."""
        return {"calls": self.calls, "tokens": self.tokens, "dollars": self.dollars}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what an earlier run has spent.

        Raises:
            FileFormatError: the state is not one of a tool budget.
        """
        try:
            calls, tokens, dollars = int(state["calls"]), int(state["tokens"]), float(state["dollars"])
        except (KeyError, TypeError, ValueError) as cause:
            raise FileFormatError(f"the state of the tool budget is malformed: {cause!r}") from cause
        self.calls, self.tokens, self.dollars = calls, tokens, dollars


class Answer(NamedTuple):
    """What a backend found, and what that cost."""

    result: ToolResult
    cost: CallCost = CallCost()


class Backend(Protocol):
    """One search engine. Tries once; a failure is raised as `ToolFailure`."""

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def expected_cost(self) -> CallCost:
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
