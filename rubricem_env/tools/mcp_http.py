"""The MCP server over HTTP: a bearer token, a health route and a readiness route around the protocol's endpoint."""

import hmac
from collections.abc import Callable
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import SecretStr
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

PATH = "/mcp"
HEALTH_PATH = "/health"
READY_PATH = "/ready"
LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
_OPEN_PATHS = frozenset({HEALTH_PATH, READY_PATH})


def http_app(
    server: "Server[Any]",
    *,
    token: SecretStr | None,
    host: str = "127.0.0.1",
    is_ready: Callable[[], bool] = lambda: True,
) -> ASGIApp:
    """An ASGI app: the protocol at /mcp, /health while the process lives, /ready while it can answer calls.

    Replies are plain JSON and no session is kept, so any client may come back to a restarted server. On loopback
    the Host and Origin headers are checked, against DNS rebinding; elsewhere the token has to protect it.
    """

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ready(_: Request) -> Response:
        answer = is_ready()
        return JSONResponse({"ready": answer}, status_code=200 if answer else 503)

    beyond = None if host in LOOPBACK_HOSTS else TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,
        host=host,
        transport_security=beyond,
        custom_starlette_routes=[Route(HEALTH_PATH, health), Route(READY_PATH, ready)],
    )
    return app if token is None else BearerGate(app, token)


class BearerGate:
    """Lets requests with the token through, and those that only ask whether the server lives."""

    def __init__(self, app: ASGIApp, token: SecretStr) -> None:
        self._app = app
        self._expected = f"Bearer {token.get_secret_value()}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _OPEN_PATHS or self._knows(scope):
            await self._app(scope, receive, send)
            return
        headers = {"WWW-Authenticate": "Bearer"}
        sentence = {"error": "send the server's token: Authorization: Bearer <token>"}
        await JSONResponse(sentence, status_code=401, headers=headers)(scope, receive, send)

    def _knows(self, scope: Scope) -> bool:
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        return hmac.compare_digest(given, self._expected)
