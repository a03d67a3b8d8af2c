"""Answers and errors as JSON."""

import hashlib
import json

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from rubricem_env.domain.base import Frozen
from rubricem_viewer.refusals import NotThereError, UnknownStageError

JSON = "application/json"
_STATUS = {NotThereError: 404, UnknownStageError: 422}


def answer(request: Request, model: Frozen) -> Response:
    """A value; 304 without a body where the asker has the same one."""
    body = model.model_dump_json().encode()
    tag = f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
    known = [written.strip().removeprefix("W/") for written in request.headers.get("if-none-match", "").split(",")]
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
    return problem(next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 409), str(error))
