"""Which rows of a list are wanted: the parameters of a request."""

from typing import Annotated

from pydantic import ConfigDict, Field

from rubricem_env.domain.base import Frozen, StageName
from rubricem_viewer.api.trajectories import Sort

MAX_SIZE = 200

StepBound = Annotated[int | None, Field(ge=0, le=2**31 - 1)]

ScoreBound = Annotated[float | None, Field(ge=0, le=1)]


class PageFilter(Frozen):
    """Which rows of a list are wanted, and which page of them.

    The fields are the parameters of a request, so unknown ones are ignored. None, 0 and "" ask for nothing.
    """

    model_config = ConfigDict(strict=False, extra="ignore")

    page: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    size: Annotated[int, Field(ge=1, le=MAX_SIZE)] = 50
    q: Annotated[str, Field(max_length=500)] = ""
    """Text that a row contains, in capitals or not."""

    @property
    def rows(self) -> slice:
        """The page within the rows that pass."""
        return slice((self.page - 1) * self.size, self.page * self.size)


class RolloutFilter(PageFilter):
    """Which rollouts are wanted, and in which order; all but `q`, which is looked for in questions, is met exactly."""

    question: Annotated[str, Field(max_length=64)] = ""
    group: Annotated[str, Field(max_length=30)] = ""
    lesson: Annotated[int, Field(ge=0, le=2**53)] = 0
    """The item of the bank that they must have read."""
    step_from: StepBound = None
    step_to: StepBound = None
    ending: Annotated[str, Field(max_length=40)] = ""
    valid: bool | None = None
    stage: StageName | None = None
    """Whose score the bounds and the order speak of; the mean without one."""
    score_from: ScoreBound = None
    score_to: ScoreBound = None
    sort: Sort = "newest"
