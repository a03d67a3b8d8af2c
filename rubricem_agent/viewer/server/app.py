"""The whole server as one ASGI app: the guard, the API, and the page's files."""

from collections.abc import Collection
from pathlib import Path

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from rubricem_agent.viewer.server import bank_routes, evaluation_routes, run_routes, trajectory_routes
from rubricem_agent.viewer.server.answers import tell_error, tell_http, tell_invalid
from rubricem_agent.viewer.server.asking import Desk
from rubricem_agent.viewer.server.guard import LOOPBACK, Guard
from rubricem_env.domain.errors import RubricEMError

STATIC = Path(__file__).parents[1] / "static"


def make_app(desk: Desk, *, token: str, hosts: Collection[str] = LOOPBACK) -> ASGIApp:
    """The viewer over what stands on the desk. `hosts` are the names under which it may be asked."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.state.desk = desk
    api = APIRouter(prefix="/api")
    for part in (run_routes, trajectory_routes, bank_routes, evaluation_routes):
        api.include_router(part.routes)
    app.include_router(api)
    app.add_exception_handler(RubricEMError, tell_error)
    app.add_exception_handler(RequestValidationError, tell_invalid)
    app.add_exception_handler(HTTPException, tell_http)
    app.mount("/", StaticFiles(directory=STATIC, html=True, check_dir=False))
    return Guard(app, token=token, hosts=hosts)
