"""What a request names: the run, its record, its evaluation."""

from typing import Annotated

from fastapi import Depends, Query, Request

from rubricem_viewer.refusals import NotThereError
from rubricem_viewer.run_folder import RunFolder
from rubricem_viewer.shelf import RunShelf


def shelf_of(request: Request) -> RunShelf:
    shelf = request.app.state.shelf
    assert isinstance(shelf, RunShelf)
    return shelf


def run_of(request: Request, run: str) -> RunFolder:
    """The run that a path names."""
    return shelf_of(request).find(run)


TheRun = Annotated[RunFolder, Depends(run_of)]


def recorded_run_of(run: TheRun) -> RunFolder:
    """The run that a path names, its record read up to now.

    Raises:
        NotThereError: nothing was recorded of it.
    """
    run.record.refresh()
    if not run.record.groups:
        raise NotThereError(
            f"the run {run.name} has recorded no trajectories: it has just begun, or it was trained with record=false."
        )
    return run


def evaluation_of(run: TheRun) -> RunFolder:
    """The evaluation that a path names.

    Raises:
        NotThereError: the run is none.
    """
    if run.kind != "evaluation":
        raise NotThereError(f"{run.name} is no evaluation.")
    return run


Shelf = Annotated[RunShelf, Depends(shelf_of)]

Recorded = Annotated[RunFolder, Depends(recorded_run_of)]

Evaluation = Annotated[RunFolder, Depends(evaluation_of)]

ElementNumber = Annotated[int, Query(ge=0, le=10_000_000)]
