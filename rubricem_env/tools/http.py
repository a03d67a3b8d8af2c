"""A reply's body up to a cap that counts bytes after decompression, so that a small bomb cannot become a large page.

A JSON service behind one address: asks, reads no more than a cap, and raises typed failures.
"""

import json
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import httpx2

from rubricem_env.llm.limits import parse_retry_after
from rubricem_env.tools.guard import ToolFailure, http_failure, malformed_reply

ACCEPT_ENCODING = "gzip, deflate"
_AUTO_DETECT = zlib.MAX_WBITS | 32
_PLAIN = frozenset({"", "identity"})
_ZLIB = frozenset({"gzip", "x-gzip", "deflate"})


class CappedBody(NamedTuple):
    """What was read."""

    content: bytes
    is_cut: bool
    """There was more."""


async def read_capped(response: httpx2.Response, cap: int) -> CappedBody:
    """Read a streamed response and stop at `cap` bytes; never holds much more than that.

    Raises:
        ToolFailure: it is compressed in a way that was not asked for, or broken.
    """
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in _PLAIN | _ZLIB:
        raise ToolFailure(f"the reply is compressed as {encoding[:20]!r}, which is not read.")
    inflater = zlib.decompressobj(_AUTO_DETECT) if encoding in _ZLIB else None
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk if inflater is None else _inflate(inflater, chunk, cap + 1 - len(body))
        if len(body) > cap:
            return CappedBody(bytes(body[:cap]), is_cut=True)
        if inflater is not None and inflater.eof:
            # The inflater keeps whatever comes after its end, without bound.
            break
    return CappedBody(bytes(body), is_cut=False)


def _inflate(inflater: "zlib._Decompress", chunk: bytes, room: int) -> bytes:
    try:
        return inflater.decompress(inflater.unconsumed_tail + chunk, max(1, room))
    except zlib.error as problem:
        raise ToolFailure("the reply is compressed and broken; it cannot be read.", passes=True) from problem


MAX_BYTES = 5_000_000
"""After decompression. Results of a search are a hundredth of this."""
_MAX_ERROR_BYTES = 2_000


class JsonEndpoint:
    """Redirects are not followed: a key must not wander."""

    def __init__(self, name: str, client: httpx2.AsyncClient) -> None:
        self._name = name
        self._client = client

    @classmethod
    def connect(cls, name: str, *, headers: Mapping[str, str], timeout: float = 30.0) -> "JsonEndpoint":
        """`timeout` is in seconds, for single reads; the whole try is bounded where it is called."""
        limits = httpx2.Limits(max_connections=None)
        sent = {"accept-encoding": ACCEPT_ENCODING, "accept": "application/json", **headers}
        return cls(name, httpx2.AsyncClient(headers=sent, timeout=timeout, limits=limits, follow_redirects=False))

    async def get(self, url: str, parameters: Mapping[str, str]) -> Any:
        """The JSON value of the reply.

        Raises:
            ToolFailure: no connection, no success, too large, or no JSON.
        """
        return await self._ask(self._client.build_request("GET", url, params=parameters))

    async def post(self, url: str, body: Mapping[str, Any]) -> Any:
        """As `get`, with a JSON body."""
        return await self._ask(self._client.build_request("POST", url, json=body))

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _ask(self, request: httpx2.Request) -> Any:
        try:
            response = await self._client.send(request, stream=True)
            try:
                return await self._read(response)
            finally:
                await response.aclose()
        except httpx2.TransportError as failure:
            reason = f"{type(failure).__name__} {failure}".strip()
            raise ToolFailure(f"{self._name} cannot be reached: {reason}.", passes=True) from failure

    async def _read(self, response: httpx2.Response) -> Any:
        is_success = response.status_code == httpx2.codes.OK
        body = await read_capped(response, MAX_BYTES if is_success else _MAX_ERROR_BYTES)
        if not is_success:
            wait = parse_retry_after(response.headers.get("retry-after"))
            raise http_failure(self._name, response.status_code, said=_message(body.content), retry_after=wait)
        if body.is_cut:
            raise ToolFailure(f"{self._name} answered with more than {MAX_BYTES:,} bytes; the reply is not read.")
        try:
            return json.loads(body.content)
        except (ValueError, RecursionError) as problem:
            raise malformed_reply(self._name) from problem


def _message(body: bytes) -> str:
    """The first line of an error that is not a page of HTML."""
    text = body.decode("utf-8", "replace").strip()
    return "" if text.startswith("<") else " ".join(text.split())[:200]
