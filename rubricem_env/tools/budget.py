"""What tools may spend in a run: calls and money, with a hard stop before either is passed."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.tool import ToolStatus
from rubricem_env.llm.usage import Ceilings
from rubricem_env.tools.failure import ToolFailure


class Cost(NamedTuple):
    """What one call uses, or may use at most."""

    tokens: int = 0
    dollars: float = 0.0


class Charge:
    """Where a call under way writes what it cost; one that fails costs a call and no money."""

    def __init__(self) -> None:
        self.cost = Cost()

    def record(self, cost: Cost) -> None:
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
    def reserve(self, expected: Cost) -> Iterator[Charge]:
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

    def _refuse_beyond_ceilings(self, expected: Cost) -> None:
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
