"""Reflection work as values: its ticket, its ways to end, and the counts of a run."""

from typing import Generic, NamedTuple, TypeVar

Result = TypeVar("Result")


class Ticket(NamedTuple):
    """One piece of work: the reflection on the question `key` as it was met in `step`."""

    step: int
    key: str

    def __str__(self) -> str:
        return f"the reflection of step {self.step} on {self.key!r}"


class Done(NamedTuple, Generic[Result]):
    """Work that is ready to be trained on."""

    ticket: Ticket
    result: Result


class Failed(NamedTuple):
    """Work that the world prevented."""

    ticket: Ticket
    reason: str


class Collected(NamedTuple, Generic[Result]):
    """What a step may train on, and what failed since the last look; by step, then by key."""

    step: int
    done: tuple[Done[Result], ...]
    failed: tuple[Failed, ...]

    @property
    def staleness(self) -> tuple[int, ...]:
        """Steps from launch to use of each that is done: 1 by design, more where the work was late."""
        return tuple(self.step - done.ticket.step for done in self.done)


class WorkCounts(NamedTuple):
    """What has happened since the run began; a resume goes on counting."""

    launched: int = 0
    done: int = 0
    failed: int = 0
    seconds: float = 0.0
    """From launch to end, summed over the work that ended."""
    collected: int = 0
    staleness: int = 0
    """Summed over the work that was collected."""
    max_staleness: int = 0
    waits: int = 0
    misses: int = 0
    """Waits after which the question's own lesson was not there."""
    waited_seconds: float = 0.0

    @property
    def mean_staleness(self) -> float:
        return self.staleness / self.collected if self.collected else 0.0
