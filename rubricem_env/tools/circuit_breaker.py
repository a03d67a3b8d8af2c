"""Refuses calls to an engine that has failed many times in a row."""

from collections.abc import Callable

from rubricem_env.domain.errors import ToolError
from rubricem_env.domain.trajectory import ToolStatus
from rubricem_env.tools.failures import ToolFailure


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
            self._failures = 0
            self._opened_at = None
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
