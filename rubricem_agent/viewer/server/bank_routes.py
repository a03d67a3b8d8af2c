"""The bank: browse, search, one item, and the three changes that a person may make."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as PathParameter

from rubricem_agent.memory.item import ItemStatus
from rubricem_agent.viewer.api_models.bank import BankChange
from rubricem_agent.viewer.bank_view import BankViews
from rubricem_agent.viewer.server.answers import answer
from rubricem_agent.viewer.server.asking import Desk, PageNumber, PageSize, SearchText, TheDesk, TheRun

routes = APIRouter(prefix="/runs/{run}/bank")
ItemNumber = Annotated[int, PathParameter(ge=1, le=2**53)]


@routes.get("")
def list_items(
    request: Request,
    desk: TheDesk,
    run: TheRun,
    page: PageNumber = 1,
    size: PageSize = 50,
    q: SearchText = "",
    status: ItemStatus | None = None,
) -> Response:
    return answer(request, _views(desk, run).page(number=page, size=size, text=q, status=status))


@routes.get("/search")
def search(
    request: Request,
    desk: TheDesk,
    run: TheRun,
    text: Annotated[str, Query(min_length=1, max_length=2_000)],
    limit: Annotated[int, Query(ge=1, le=100)] = 10,
) -> Response:
    return answer(request, _views(desk, run).search(text, limit=limit))


@routes.get("/{item}")
def show_item(request: Request, desk: TheDesk, run: TheRun, item: ItemNumber) -> Response:
    return answer(request, _views(desk, run).item(item))


@routes.post("/{item}")
def change_item(request: Request, desk: TheDesk, run: TheRun, item: ItemNumber, change: BankChange) -> Response:
    return answer(request, _views(desk, run).change(item, change))


def _views(desk: Desk, run: TheRun) -> BankViews:
    run.record.refresh()
    return BankViews(desk.banks.bank_of(run), run.record)
