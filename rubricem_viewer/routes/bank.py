"""The routes of the bank, with the changes that a person may make."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from rubricem_viewer.api.lessons import BankChange
from rubricem_viewer.bank_views import BankFilter, BankViews
from rubricem_viewer.replies import answer, problem
from rubricem_viewer.routes.requested import Shelf, TheRun
from rubricem_viewer.run_folder import RunFolder
from rubricem_viewer.shelf import RunShelf

bank_routes = APIRouter(prefix="/runs/{run}/bank")

ItemNumber = Annotated[int, Path(ge=1, le=2**53)]


@bank_routes.get("")
def list_items(request: Request, shelf: Shelf, run: TheRun, wanted: Annotated[BankFilter, Query()]) -> Response:
    return answer(request, _views(shelf, run).page(wanted))


@bank_routes.get("/search")
def search(
    request: Request,
    shelf: Shelf,
    run: TheRun,
    text: Annotated[str, Query(min_length=1, max_length=2_000)],
    limit: Annotated[int, Query(ge=1, le=100)] = 10,
) -> Response:
    return answer(request, _views(shelf, run).search(text, limit=limit))


@bank_routes.get("/{item}")
def show_item(request: Request, shelf: Shelf, run: TheRun, item: ItemNumber) -> Response:
    return answer(request, _views(shelf, run).item(item))


@bank_routes.post("/{item}")
def change_item(request: Request, shelf: Shelf, run: TheRun, item: ItemNumber, change: BankChange) -> Response:
    views = _views(shelf, run)
    return answer(request, views.change(item, change)) if views.is_editable else problem(403, views.note)


def _views(shelf: RunShelf, run: RunFolder) -> BankViews:
    run.record.refresh()
    return shelf.bank_of(run)
