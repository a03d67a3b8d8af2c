"""Chooses which of several servers is asked."""

from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager

from rubricem_env.domain.errors import BoundaryError


class Balancer:
    """Which of several servers is asked: that with the fewest open requests, and of those the one asked longest ago.

    A server that fails as one that is away is left out for `rest` seconds. Then one request at a time tries it, until
    it answers again.
    """

    def __init__(self, number: int, clock: Callable[[], float], rest: float = 30.0) -> None:
        self._clock = clock
        self._rest = rest
        self._open = dict.fromkeys(range(number), 0)
        """Open requests of each server; the server that was asked last stands last."""
        self._failed: dict[int, float] = {}
        """The time when each server that is away last failed."""

    @contextmanager
    def request(self, among: Container[int]) -> Iterator[int]:
        """Choose a server, and count the request as open until the block ends. A failure marks the server as away."""
        chosen = min((server for server in self._open if server in among), key=self._rank)
        self._open[chosen] = self._open.pop(chosen) + 1
        try:
            yield chosen
            self._failed.pop(chosen, None)
        except BoundaryError as failure:
            if failure.is_retryable:
                self._failed[chosen] = self._clock()
            raise
        finally:
            self._open[chosen] -= 1

    def _rank(self, server: int) -> tuple[bool, float]:
        """Servers that answer come first, then those that failed longest ago."""
        failed = self._failed.get(server)
        if failed is None or (self._clock() >= failed + self._rest and not self._open[server]):
            return False, self._open[server]
        return True, failed
