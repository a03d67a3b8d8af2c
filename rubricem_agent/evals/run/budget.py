"""The most that a run may cost, over all its parts and all the times that it was resumed."""

from collections.abc import Iterable

from rubricem_env.llm.usage import CeilingReached, Meter


class Budget:
    """Adds up meters. Calls under way when the ceiling is met are paid for; none begins after it."""

    def __init__(self, ceiling: float | None, *, spent_before: float, meters: Iterable[Meter]) -> None:
        self._ceiling = ceiling
        self._spent_before = spent_before
        self._meters = tuple(meters)

    @property
    def spent(self) -> float:
        """Dollars, those of earlier parts included."""
        return self._spent_before + sum(meter.total.dollars for meter in self._meters)

    def check(self) -> None:
        """Let the next call begin.

        Raises:
            CeilingReached: the ceiling is met; the message says how to go on.
        """
        if self._ceiling is not None and self.spent >= self._ceiling:
            raise CeilingReached(
                f"the run has cost ${self.spent:.2f}, and the budget is ${self._ceiling:.2f}. Everything so far is in "
                "the logs: run the same command with a larger --budget to go on."
            )
