"""What every request passes first: whose host it names, whether it knows the token, how much it sends.

The server listens on this machine alone, and a browser on this machine runs other people's pages. So: a page
elsewhere cannot reach it under a name of its own (DNS rebinding), no request carries a right by itself (the token is a
header, never a cookie), and what is served may run no script but the page's own, load nothing from elsewhere, stand in
no frame and tell no other site where it was opened.
"""

import hmac
import json
from collections.abc import Collection, Iterable, Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Guard:
    """An ASGI app around the viewer's."""

    def __init__(self, app: ASGIApp, *, token: str, hosts: Collection[str] = LOOPBACK) -> None:
        self._app = app
        self._token = token.encode()
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope, Headers(scope=scope))
        if refusal is None:
            await self._app(scope, receive, _with_headers(send))
        else:
            await _refuse(_with_headers(send), *refusal)

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        """Status and sentence, or None for a request that may pass."""
        if _hostname(headers.get("host", "")) not in self._hosts:
            return 421, "this server answers under the name of this machine alone. Open the address that it printed."
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, "only GET, HEAD and POST are answered."
        if not scope["path"].startswith(API):
            return None
        if not self._knows_token(headers.getlist("authorization")):
            return 401, "the token is missing or wrong. Open the address that `rubricem view` printed, with its token."
        return self._refuse_write(headers) if scope["method"] == "POST" else None

    def _knows_token(self, given: Iterable[str]) -> bool:
        return any(hmac.compare_digest(value.encode("utf-8", "replace"), b"Bearer " + self._token) for value in given)

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


def _hostname(host: str) -> str:
    """The name without its port; empty for what is no host."""
    try:
        return (urlsplit(f"//{host}").hostname or "") if "@" not in host else ""
    except ValueError:
        return ""


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
        await send(message)

    return sending


async def _refuse(send: Send, status: int, sentence: str) -> None:
    body = json.dumps({"status": status, "message": sentence}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
