"""The viewer's server as one ASGI app: the guard, the routes of the API, and the page's files."""

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from rubricem_env.domain.errors import RubricEMError
from rubricem_viewer.guard import Guard
from rubricem_viewer.replies import tell
from rubricem_viewer.routes.bank import bank_routes
from rubricem_viewer.routes.evaluations import evaluation_routes
from rubricem_viewer.routes.runs import run_routes
from rubricem_viewer.routes.trajectories import trajectory_routes
from rubricem_viewer.shelf import RunShelf
from rubricem_viewer.single_file import STATIC


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
