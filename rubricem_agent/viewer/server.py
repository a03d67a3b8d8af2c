"""The viewer's server as one ASGI app: the routes of the API, the guard, and the page's files.

Routes: runs and comparisons, trajectories and their rubrics, the bank with the changes a person may make, evaluations.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, FastAPI, Path as PathParameter, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from rubricem_agent.memory.store import ItemStatus
from rubricem_agent.viewer.ablation import load_ablation
from rubricem_agent.viewer.api_runs import About, BankChange, Comparison, RunCard, RunDetail, RunList
from rubricem_agent.viewer.api_trajectories import ExampleSort
from rubricem_agent.viewer.bank import BankViews
from rubricem_agent.viewer.curves import compare_runs, make_figures
from rubricem_agent.viewer.evaluations import view_evaluation, view_example, view_examples
from rubricem_agent.viewer.records import NotThereError
from rubricem_agent.viewer.requests import (
    LOOPBACK,
    ElementNumber,
    Evaluation,
    Filtered,
    Guard,
    PageNumber,
    PageSize,
    Recorded,
    SearchText,
    ServerContext,
    TheDesk,
    TheRun,
    answer,
    tell_error,
    tell_http,
    tell_invalid,
)
from rubricem_agent.viewer.runs import RunFolder, make_card
from rubricem_env import __version__
from rubricem_env.domain.errors import RubricEMError

bank_routes = APIRouter(prefix="/runs/{run}/bank")
ItemNumber = Annotated[int, PathParameter(ge=1, le=2**53)]


@bank_routes.get("")
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


@bank_routes.get("/search")
def search(
    request: Request,
    desk: TheDesk,
    run: TheRun,
    text: Annotated[str, Query(min_length=1, max_length=2_000)],
    limit: Annotated[int, Query(ge=1, le=100)] = 10,
) -> Response:
    return answer(request, _views(desk, run).search(text, limit=limit))


@bank_routes.get("/{item}")
def show_item(request: Request, desk: TheDesk, run: TheRun, item: ItemNumber) -> Response:
    return answer(request, _views(desk, run).item(item))


@bank_routes.post("/{item}")
def change_item(request: Request, desk: TheDesk, run: TheRun, item: ItemNumber, change: BankChange) -> Response:
    return answer(request, _views(desk, run).change(item, change))


def _views(desk: ServerContext, run: TheRun) -> BankViews:
    run.record.refresh()
    return desk.banks.bank_of(run)


evaluation_routes = APIRouter(prefix="/runs/{run}/evaluation")


@evaluation_routes.get("")
def show_evaluation(request: Request, run: Evaluation) -> Response:
    return answer(request, view_evaluation(run))


@evaluation_routes.get("/examples")
def list_examples(
    request: Request,
    run: Evaluation,
    page: PageNumber = 1,
    size: PageSize = 50,
    q: SearchText = "",
    sort: ExampleSort = "id",
) -> Response:
    return answer(request, view_examples(run, number=page, size=size, text=q, sort=sort))


@evaluation_routes.get("/examples/{example}")
def show_example(request: Request, run: Evaluation, example: str, from_element: ElementNumber = 0) -> Response:
    return answer(request, view_example(run, example, from_element=from_element))


run_routes = APIRouter()
MOST_COMPARED = 12


@run_routes.get("/about")
def about(request: Request, desk: TheDesk) -> Response:
    only = desk.shelf.only_run
    return answer(request, About(release=__version__, root=desk.shelf.root.name, only_run=only.id if only else None))


@run_routes.get("/runs")
def list_runs(request: Request, desk: TheDesk) -> Response:
    cards = sorted((_card(run, desk) for run in desk.shelf.runs()), key=lambda card: (-card.changed, card.name))
    return answer(request, RunList(runs=tuple(cards)))


@run_routes.get("/compare")
def compare(request: Request, desk: TheDesk, run: Annotated[list[str], Query(max_length=MOST_COMPARED)]) -> Response:
    found = [desk.shelf.find(one) for one in dict.fromkeys(run)]
    training = [(make_card(one), one.read()) for one in found if one.kind == "training"]
    if len(training) < 2:
        raise NotThereError("a comparison needs two training runs or more.")
    return answer(request, compare_runs(training))


@run_routes.get("/runs/{run}")
def show_run(request: Request, desk: TheDesk, run: TheRun) -> Response:
    card = _card(run, desk)
    read = run.read() if run.kind == "training" and card.state != "unreadable" else None
    return answer(
        request,
        RunDetail(
            card=card,
            settings=read.settings if read else {},
            alarms=tuple({"step": line.step, "message": line.alarm} for line in read.log.warnings) if read else (),
            notes=tuple(_notes(run)),
        ),
    )


@run_routes.get("/runs/{run}/state")
def show_state(request: Request, desk: TheDesk, run: TheRun) -> Response:
    return answer(request, _card(run, desk))


@run_routes.get("/runs/{run}/curves")
def show_curves(request: Request, run: TheRun) -> Response:
    if run.kind != "training":
        raise NotThereError(f"{run.name} is no training run; it has no curves.")
    return answer(request, Comparison(figures=make_figures(run.read())))


@run_routes.get("/runs/{run}/ablation")
def show_ablation(request: Request, run: TheRun) -> Response:
    if run.kind != "ablation":
        raise NotThereError(f"{run.name} is no ablation.")
    return answer(request, load_ablation(run.folder))


def _card(run: RunFolder, desk: ServerContext) -> RunCard:
    return make_card(run).model_copy(update={"has_bank": desk.banks.has_bank(run)})


def _notes(run: RunFolder) -> list[str]:
    damaged = run.record.damaged + run.bank.damaged + run.answers.damaged
    notes = [f"{damaged} lines of this run's record cannot be read and are left out."] if damaged else []
    if run.kind == "training" and not len(run.record.table):
        notes.append("No trajectories were recorded; train with record=true to have them.")
    return notes


trajectory_routes = APIRouter(prefix="/runs/{run}")
GroupSort = Literal["attempt", "mean", "plan", "research", "review", "answer"]
Offset = Annotated[int, Query(ge=0, le=2**31 - 1)]


@trajectory_routes.get("/trajectories")
def list_trajectories(
    request: Request,
    run: Recorded,
    filtered: Filtered,
    page: PageNumber = 1,
    size: PageSize = 50,
    q: SearchText = "",
    question: Annotated[str, Query(max_length=64)] = "",
    group: Annotated[str, Query(max_length=30)] = "",
) -> Response:
    wanted, lesson = filtered
    found = run.trajectories(wanted, text=q, question=question, group=group, lesson=lesson, page=page, size=size)
    return answer(request, found)


@trajectory_routes.get("/trajectories/{rollout}")
def show_trajectory(request: Request, run: Recorded, rollout: str, from_element: ElementNumber = 0) -> Response:
    return answer(request, run.trajectory(rollout, from_element=from_element))


@trajectory_routes.get("/trajectories/{rollout}/elements/{index}")
def show_element(request: Request, run: Recorded, rollout: str, index: int, offset: Offset = 0) -> Response:
    return answer(request, run.element(rollout, max(index, 0), offset=offset))


@trajectory_routes.get("/trajectories/{rollout}/tokens")
def show_tokens(
    request: Request,
    run: Recorded,
    rollout: str,
    offset: Offset = 0,
    limit: Annotated[int, Query(ge=1, le=5_000)] = 2_000,
) -> Response:
    return answer(request, run.tokens(rollout, offset=offset, limit=limit))


@trajectory_routes.get("/groups/{group}")
def show_group(request: Request, run: Recorded, group: str, sort: GroupSort = "attempt") -> Response:
    return answer(request, run.group(group, sort=sort))


@trajectory_routes.get("/questions")
def list_questions(
    request: Request, run: Recorded, page: PageNumber = 1, size: PageSize = 50, q: SearchText = ""
) -> Response:
    return answer(request, run.questions(text=q, page=page, size=size))


@trajectory_routes.get("/questions/{question}")
def show_rubrics(request: Request, run: Recorded, question: str) -> Response:
    return answer(request, run.rubrics(question))


STATIC = Path(__file__).parent / "static"


def make_app(desk: ServerContext, *, token: str, hosts: Collection[str] = LOOPBACK) -> ASGIApp:
    """The viewer over what stands on the desk. `hosts` are the names under which it may be asked."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.state.desk = desk
    api = APIRouter(prefix="/api")
    for router in (run_routes, trajectory_routes, bank_routes, evaluation_routes):
        api.include_router(router)
    app.include_router(api)
    app.add_exception_handler(RubricEMError, tell_error)
    app.add_exception_handler(RequestValidationError, tell_invalid)
    app.add_exception_handler(HTTPException, tell_http)
    app.mount("/", StaticFiles(directory=STATIC, html=True, check_dir=False))
    return Guard(app, token=token, hosts=hosts)
