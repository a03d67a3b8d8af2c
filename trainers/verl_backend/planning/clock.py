"""Simulated time: processes are generators that yield what they wait for, seconds or a signal."""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterable

Process = Generator["float | Signal", None, None]


class Signal:
    """Something that happens once."""

    def __init__(self) -> None:
        self.has_fired = False
        self._waiting: list[Callable[[], None]] = []

    def fire(self) -> None:
        if not self.has_fired:
            self.has_fired = True
            for waiting in self._waiting:
                waiting()

    def then(self, callback: Callable[[], None]) -> None:
        """Call back when it happens, at once where it has."""
        if self.has_fired:
            callback()
        else:
            self._waiting.append(callback)


class Clock:
    """Runs processes in the order of their times; among equal times, in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now = 0.0
        self.watchers: list[Callable[[float], None]] = []
        """Told of each stretch of time before it is over, while the state is still that of the stretch."""
        self._order = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), callback))

    def start(self, process: Process) -> Signal:
        """Let a process run; the signal says that it is done."""
        done = Signal()

        def resume() -> None:
            for waited_for in process:
                if not isinstance(waited_for, Signal):
                    self.after(waited_for, resume)
                    return
                if not waited_for.has_fired:
                    waited_for.then(resume)
                    return
            done.fire()

        resume()
        return done

    def run(self, until: Signal | None = None) -> None:
        """On to the end of all processes, or to a signal."""
        while self._events and not (until and until.has_fired):
            time, _, callback = heapq.heappop(self._events)
            for watcher in self.watchers:
                watcher(time - self.now)
            self.now = time
            callback()


def all_of(signals: Iterable[Signal]) -> Process:
    """A process that is over when all of them have happened."""
    yield from signals


class Seats:
    """A number of places that are taken in the order of asking."""

    def __init__(self, number: int) -> None:
        self.taken = 0
        self._number = number
        self._queue: deque[Signal] = deque()

    def take(self) -> Signal:
        """Fires when a place is there; then it is taken."""
        turn = Signal()
        if self.taken < self._number:
            self.taken += 1
            turn.fire()
        else:
            self._queue.append(turn)
        return turn

    def leave(self) -> None:
        if self._queue:
            self._queue.popleft().fire()
        else:
            self.taken -= 1
