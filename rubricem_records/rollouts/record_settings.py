"""Which rollouts of a run are recorded."""

from collections.abc import Sequence
from typing import Annotated, TypeVar

from pydantic import BeforeValidator

from rubricem_env.domain.base import PositiveCount
from rubricem_env.domain.settings import Settings

Entry = TypeVar("Entry")


class RecordSettings(Settings):
    """A sample of the run's rollouts; the defaults keep them all."""

    every: PositiveCount = 1
    """Steps between recorded steps."""
    attempts: PositiveCount | None = None
    """The most attempts of a group that are recorded, spread evenly over it; None records all."""

    def choose(self, attempts: Sequence[Entry]) -> list[Entry]:
        """The attempts of a group that are recorded, in their order."""
        size = len(attempts)
        kept = min(size, self.attempts or size)
        return [attempts[number * size // kept] for number in range(kept)]


WHOLE = RecordSettings()


def _from_switch(given: object) -> object:
    """`true` records all, `false` nothing."""
    return (WHOLE if given else None) if isinstance(given, bool) else given


Recorded = Annotated[RecordSettings | None, BeforeValidator(_from_switch)]
"""In a config: true, false, or what is sampled."""
