"""Guards the server: who may ask, and what a served page may do.

The server listens on this machine alone, and a browser on this machine runs other people's pages. Therefore a page
elsewhere cannot reach it under another host name (DNS rebinding), no request is authorized by itself (the token is a
header, never a cookie), and a served page may run only its own script, load nothing from elsewhere, be shown in no
frame and send no referrer.
"""

import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rubricem_env.llm.hosts import LOOPBACK, host_of
from rubricem_viewer.replies import problem

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
