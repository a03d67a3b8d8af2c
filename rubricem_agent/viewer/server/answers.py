"""Answers as JSON with an ETag, and errors as a status with one sentence."""

import hashlib

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from rubricem_agent.memory.errors import UnknownItemError
from rubricem_agent.viewer.api_models.runs import Problem
from rubricem_agent.viewer.problems import NotAllowedError, NotThereError
from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import RubricEMError

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
    told = Problem(status=status, message=message)
    return Response(told.model_dump_json(), status_code=status, media_type=JSON)


async def tell_error(request: Request, error: Exception) -> Response:
    """One of our own errors: the sentence is meant for a person."""
    assert isinstance(error, RubricEMError)
    if isinstance(error, NotAllowedError):
        return problem(403, str(error))
    is_missing = isinstance(error, NotThereError) or (isinstance(error, UnknownItemError) and request.method != "POST")
    return problem(404 if is_missing else 409, str(error))


async def tell_invalid(request: Request, error: Exception) -> Response:
    """A parameter or a body that breaks a rule."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return problem(422, f"{place}: {first['msg']}")


async def tell_http(request: Request, error: Exception) -> Response:
    """What the framework itself refuses, such as a path that leads nowhere."""
    assert isinstance(error, HTTPException)
    return problem(error.status_code, f"{request.url.path[:200]}: {error.detail}")
