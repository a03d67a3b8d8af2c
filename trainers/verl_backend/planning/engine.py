"""A sampling engine in simulated time: requests share its speed, none is faster than a single one can be."""

import heapq
import itertools

from trainers.verl_backend.planning.clock import Clock, Seats, Signal


class Engine:
    """Serves requests for tokens, as many at once as it has seats; the rest wait their turn.

    All that are served go at the same speed: the engine's share each, or the speed of a single sequence where that is
    less. So one count of tokens served says when each is done, however often the speed changes.
    """

    def __init__(self, clock: Clock, *, speed: float, fastest: float, seats: int) -> None:
        """`speed` is tokens a second in all, `fastest` those of one request at most."""
        self._clock = clock
        self._speed = speed
        self._fastest = fastest
        self._seats = Seats(seats)
        self._is_paused = False
        self._served = 0.0
        self._counted_at = 0.0
        self._version = 0
        self._order = itertools.count()
        self._ends: list[tuple[float, int, Signal]] = []

    @property
    def is_busy(self) -> bool:
        return bool(self._ends) and not self._is_paused

    @property
    def requests(self) -> int:
        return len(self._ends)

    def serve(self, tokens: float) -> Signal:
        """Fires when so many tokens are sampled."""
        done = Signal()
        self._seats.take().then(lambda: self._begin(tokens, done))
        return done

    def pause(self) -> None:
        """Requests keep what they have and get no more."""
        self._count()
        self._is_paused = True
        self._plan()

    def resume(self) -> None:
        self._count()
        self._is_paused = False
        self._plan()

    def _begin(self, tokens: float, done: Signal) -> None:
        self._count()
        heapq.heappush(self._ends, (self._served + tokens, next(self._order), done))
        self._plan()

    def _rate(self) -> float:
        """Tokens a second of each request."""
        if self._is_paused or not self._ends:
            return 0.0
        return min(self._fastest, self._speed / len(self._ends))

    def _count(self) -> None:
        self._served += self._rate() * (self._clock.now - self._counted_at)
        self._counted_at = self._clock.now

    def _plan(self) -> None:
        """Ask to be called at the next end; what was asked before no longer counts."""
        self._version += 1
        rate, version = self._rate(), self._version
        if rate:
            self._clock.after(max(0.0, (self._ends[0][0] - self._served) / rate), lambda: self._finish(version))

    def _finish(self, version: int) -> None:
        if version != self._version:
            return
        self._count()
        end, _, done = heapq.heappop(self._ends)
        self._served = max(self._served, end)
        self._plan()
        self._seats.leave()
        done.fire()
