"""What routes take from a request: the shelf, a run, and the parameters that several of them share."""

from typing import Annotated, NamedTuple

from fastapi import Depends, Query, Request

from rubricem_agent.viewer.api_models.trajectories import Sort
from rubricem_agent.viewer.bank_door import BankDoor
from rubricem_agent.viewer.problems import NotThereError
from rubricem_agent.viewer.rollout_table import Filter
from rubricem_agent.viewer.run_folder import RunFolder
from rubricem_agent.viewer.run_shelf import RunShelf
from rubricem_agent.viewer.run_views import RunViews
from rubricem_env.domain.stage import Stage

MAX_SIZE = 200


class Desk(NamedTuple):
    """What the server shows."""

    shelf: RunShelf
    banks: BankDoor


def desk_of(request: Request) -> Desk:
    found = request.app.state.desk
    assert isinstance(found, Desk)
    return found


def run_of(request: Request, run: str) -> RunFolder:
    """The run that a path names."""
    return desk_of(request).shelf.find(run)


def recorded_run_of(request: Request, run: str) -> RunViews:
    """The record of the run that a path names, read up to now.

    Raises:
        NotThereError: nothing was recorded of it.
    """
    found = run_of(request, run)
    views = RunViews(found)
    if not found.record.groups:
        raise NotThereError(
            f"the run {found.name} has recorded no trajectories: it has just begun, or it was trained with "
            "record=false, or by a release that did not record them."
        )
    return views


def evaluation_of(request: Request, run: str) -> RunFolder:
    """The evaluation that a path names.

    Raises:
        NotThereError: the run is none.
    """
    found = run_of(request, run)
    if found.kind != "evaluation":
        raise NotThereError(f"{found.name} is no evaluation.")
    return found


class FilterAsked(NamedTuple):
    """A filter of trajectories as a request names it."""

    wanted: Filter
    lesson: int


StepBound = Annotated[int | None, Query(ge=0, le=2**31 - 1)]
ScoreBound = Annotated[float | None, Query(ge=0, le=1)]


class Bounds(NamedTuple):
    """Between which steps and which scores a trajectory lies; None is no bound."""

    step_from: int | None
    step_to: int | None
    score_from: float | None
    score_to: float | None


def bounds_of(
    *,
    step_from: StepBound = None,
    step_to: StepBound = None,
    score_from: ScoreBound = None,
    score_to: ScoreBound = None,
) -> Bounds:
    return Bounds(step_from, step_to, score_from, score_to)


def filter_of(
    bounds: Annotated[Bounds, Depends(bounds_of)],
    *,
    stage: Stage | None = None,
    ending: Annotated[str, Query(max_length=40)] = "",
    valid: bool | None = None,
    sort: Sort = "newest",
    lesson: Annotated[int, Query(ge=0, le=2**53)] = 0,
) -> FilterAsked:
    """The parameters that narrow a list of trajectories."""
    return FilterAsked(Filter(stage=stage, ending=ending, valid=valid, sort=sort, **bounds._asdict()), lesson)


TheDesk = Annotated[Desk, Depends(desk_of)]
TheRun = Annotated[RunFolder, Depends(run_of)]
Recorded = Annotated[RunViews, Depends(recorded_run_of)]
Evaluation = Annotated[RunFolder, Depends(evaluation_of)]
Filtered = Annotated[FilterAsked, Depends(filter_of)]
PageNumber = Annotated[int, Query(ge=1, le=1_000_000)]
PageSize = Annotated[int, Query(ge=1, le=MAX_SIZE)]
SearchText = Annotated[str, Query(max_length=500)]
ElementNumber = Annotated[int, Query(ge=0, le=10_000_000)]
