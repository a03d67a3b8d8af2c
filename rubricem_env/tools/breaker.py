"""A circuit breaker: after so many failures in a row a backend is left alone for a while."""

from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from rubricem_env.domain.base import Frozen
from rubricem_env.tools.failure import ToolFailure


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
