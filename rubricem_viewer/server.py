"""The viewer's server as one ASGI app: the guard, answers and errors as JSON, the routes of the API, and the page's files.

Routes: runs and comparisons, trajectories and their rubrics, the bank with the changes a person may make, evaluations.

The server listens on this machine alone, and a browser on this machine runs other people's pages. Therefore a page
elsewhere cannot reach it under another host name (DNS rebinding), no request is authorized by itself (the token is a
header, never a cookie), and a served page may run only its own script, load nothing from elsewhere, be shown in no
frame and send no referrer.
"""

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import RubricEMError
from rubricem_env.llm.hosts import LOOPBACK, host_of
from rubricem_viewer import groups
from rubricem_viewer.ablation import load_ablation
from rubricem_viewer.api import Comparison, RunCard, RunList
from rubricem_viewer.bank import BankChange, BankFilter, BankViews
from rubricem_viewer.curves import compare_runs, make_figures
from rubricem_viewer.evaluations import ExampleFilter, view_evaluation, view_example, view_examples
from rubricem_viewer.records import NotThereError, PageFilter, RolloutFilter
from rubricem_viewer.report import STATIC
from rubricem_viewer.runs import RunFolder, RunShelf, make_card, make_detail

API = "/api/"
MAX_BODY = 16_384
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Mapping[str, str] = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}


class Guard:
    """An ASGI app around the viewer's."""

    def __init__(self, app: ASGIApp, *, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope, Headers(scope=scope))
        if refusal is None:
            await self._app(scope, receive, _with_headers(send))
        else:
            await problem(*refusal)(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        """Status and sentence, or None for a request that may pass."""
        if host_of(headers.get("host", "")) not in LOOPBACK:
            return 421, "this server answers under the name of this machine alone. Open the address that it printed."
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, "only GET, HEAD and POST are answered."
        if not scope["path"].startswith(API):
            return None
        given = (value.encode("utf-8", "replace") for value in headers.getlist("authorization"))
        if not any(hmac.compare_digest(value, b"Bearer " + self._token) for value in given):
            return 401, "the token is missing or wrong. Open the address that `rubricem view` printed, with its token."
        return self._refuse_write(headers) if scope["method"] == "POST" else None

    def _refuse_write(self, headers: Headers) -> tuple[int, str] | None:
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
            return 403, "a change must come from the viewer's own page."
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return 415, "a change is sent as application/json."
        length = headers.get("content-length", "")
        if not length.isdecimal() or len(length) > 9 or int(length) > MAX_BODY:
            return 413, f"a change has a length of at most {MAX_BODY} bytes, and names it."
        return None


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(HEADERS)
        await send(message)

    return sending


JSON = "application/json"


def answer(request: Request, model: Frozen) -> Response:
    """A value; 304 without a body where the asker has the same one."""
    body = model.model_dump_json().encode()
    tag = f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
    known = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
    if request.method == "GET" and tag in known:
        return Response(status_code=304, headers={"etag": tag})
    return Response(body, media_type=JSON, headers={"etag": tag})


def problem(status: int, message: str) -> Response:
    return Response(json.dumps({"status": status, "message": message}), status_code=status, media_type=JSON)


async def tell(request: Request, error: Exception) -> Response:
    """Our own errors, in their sentence; what breaks a rule; and what the framework refuses, as a path to nowhere."""
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        return problem(422, f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
    if isinstance(error, HTTPException):
        return problem(error.status_code, f"{request.url.path[:200]}: {error.detail}")
    return problem(404 if isinstance(error, NotThereError) else 409, str(error))


def shelf_of(request: Request) -> RunShelf:
    found = request.app.state.shelf
    assert isinstance(found, RunShelf)
    return found


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
            f"the run {run.name} has recorded no trajectories: it has just begun, or it was trained with "
            "record=false, or by a release that did not record them."
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


evaluation_routes = APIRouter(prefix="/runs/{run}/evaluation")


@evaluation_routes.get("")
def show_evaluation(request: Request, shelf: Shelf, run: Evaluation) -> Response:
    return answer(request, view_evaluation(run, [other for other in shelf.runs() if other.kind == "evaluation"]))


@evaluation_routes.get("/examples")
def list_examples(request: Request, run: Evaluation, wanted: Annotated[ExampleFilter, Query()]) -> Response:
    return answer(request, view_examples(run, wanted))


@evaluation_routes.get("/examples/{example}")
def show_example(request: Request, run: Evaluation, example: str, from_element: ElementNumber = 0) -> Response:
    return answer(request, view_example(run, example, from_element=from_element))


run_routes = APIRouter()
MOST_COMPARED = 12


@run_routes.get("/runs")
def list_runs(request: Request, shelf: Shelf) -> Response:
    runs = shelf.runs()
    # An ablation's folder holds runs as well.
    only = runs[0].id if len(runs) == 1 and runs[0].folder == shelf.root else None
    cards = sorted((_card(run, shelf) for run in runs), key=lambda card: (-card.changed, card.name))
    return answer(request, RunList(root=shelf.root.name, only_run=only, runs=tuple(cards)))


@run_routes.get("/compare")
def compare(request: Request, shelf: Shelf, run: Annotated[list[str], Query(max_length=MOST_COMPARED)]) -> Response:
    found = [shelf.find(one) for one in dict.fromkeys(run)]
    training = [one for one in found if one.kind == "training"]
    if len(training) < 2:
        raise NotThereError("a comparison needs two training runs or more.")
    pairs = [(make_card(one), one.read()) for one in training]
    policies, judges = zip(*map(groups.latest_names, training), strict=True)
    return answer(request, compare_runs(pairs, policies=policies, judges=judges))


@run_routes.get("/runs/{run}")
def show_run(request: Request, shelf: Shelf, run: TheRun) -> Response:
    return answer(request, make_detail(run, _card(run, shelf), _notes(run)))


@run_routes.get("/runs/{run}/state")
def show_state(request: Request, shelf: Shelf, run: TheRun) -> Response:
    return answer(request, _card(run, shelf))


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


def _card(run: RunFolder, shelf: RunShelf) -> RunCard:
    return make_card(run).model_copy(update={"has_bank": shelf.has_bank(run)})


def _notes(run: RunFolder) -> list[str]:
    damaged = run.record.damaged + run.bank.damaged + run.answers.damaged
    notes = [f"{damaged} lines of this run's record cannot be read and are left out."] if damaged else []
    if run.kind == "training" and not len(run.record.table.rows):
        notes.append("No trajectories were recorded; train with record=true to have them.")
    return notes


trajectory_routes = APIRouter(prefix="/runs/{run}")
GroupSort = Literal["attempt", "mean", "plan", "research", "review", "answer"]
Offset = Annotated[int, Query(ge=0, le=2**31 - 1)]


@trajectory_routes.get("/trajectories")
def list_attempts(request: Request, run: Recorded, wanted: Annotated[RolloutFilter, Query()]) -> Response:
    return answer(request, groups.list_trajectories(run, wanted))


@trajectory_routes.get("/trajectories/{rollout}")
def show_trajectory(request: Request, run: Recorded, rollout: str, from_element: ElementNumber = 0) -> Response:
    return answer(request, groups.view_attempt(run, rollout, from_element=from_element))


@trajectory_routes.get("/trajectories/{rollout}/elements/{index}")
def show_element(request: Request, run: Recorded, rollout: str, index: int, offset: Offset = 0) -> Response:
    return answer(request, groups.view_element(run, rollout, max(index, 0), offset=offset))


@trajectory_routes.get("/trajectories/{rollout}/tokens")
def show_tokens(
    request: Request,
    run: Recorded,
    rollout: str,
    offset: Offset = 0,
    limit: Annotated[int, Query(ge=1, le=5_000)] = 2_000,
) -> Response:
    return answer(request, groups.list_tokens(run, rollout, offset=offset, limit=limit))


@trajectory_routes.get("/groups/{group}")
def show_group(request: Request, run: Recorded, group: str, sort: GroupSort = "attempt") -> Response:
    return answer(request, groups.view_group(run, group, sort=sort))


@trajectory_routes.get("/questions")
def show_questions(request: Request, run: Recorded, wanted: Annotated[PageFilter, Query()]) -> Response:
    return answer(request, groups.list_questions(run, wanted))


@trajectory_routes.get("/questions/{question}")
def show_rubrics(request: Request, run: Recorded, question: str) -> Response:
    return answer(request, groups.view_history(run, question))


def make_app(shelf: RunShelf, *, token: str) -> ASGIApp:
    """The viewer of the runs of a shelf."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.state.shelf = shelf
    api = APIRouter(prefix="/api")
    for router in (run_routes, trajectory_routes, bank_routes, evaluation_routes):
        api.include_router(router)
    app.include_router(api)
    for kind in (RubricEMError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, tell)
    app.mount("/", StaticFiles(directory=STATIC, html=True, check_dir=False))
    return Guard(app, token=token)
