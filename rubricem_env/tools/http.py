"""HTTP replies with a size limit, and JSON services with typed failures.

The limit counts bytes after decompression, so that a small compressed reply cannot become a large page.
"""

import json
import zlib
from collections.abc import Mapping
from typing import Any

import httpx2

from rubricem_env.llm.limits import parse_retry_after
from rubricem_env.tools.guard import ToolFailure, http_failure, malformed_reply

ACCEPT_ENCODING = "gzip, deflate"
_AUTO_DETECT = zlib.MAX_WBITS | 32
_PLAIN = frozenset({"", "identity"})
_ZLIB = frozenset({"gzip", "x-gzip", "deflate"})


async def read_capped(response: httpx2.Response, cap: int) -> tuple[bytes, bool]:
    """Read a streamed response up to `cap` bytes, and whether there was more; never holds much more than that.

    Raises:
        ToolFailure: it is compressed in a way that was not requested, or broken.
    """
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in _PLAIN | _ZLIB:
        raise ToolFailure(f"the reply is compressed as {encoding[:20]!r}, which is not read.")
    inflater = zlib.decompressobj(_AUTO_DETECT) if encoding in _ZLIB else None
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk if inflater is None else _inflate(inflater, chunk, cap + 1 - len(body))
        if len(body) > cap:
            return bytes(body[:cap]), True
        if inflater is not None and inflater.eof:
            # The inflater would keep everything after its end, without limit.
            break
    return bytes(body), False


def _inflate(inflater: "zlib._Decompress", chunk: bytes, room: int) -> bytes:
    try:
        return inflater.decompress(inflater.unconsumed_tail + chunk, max(1, room))
    except zlib.error as problem:
        raise ToolFailure("the reply is compressed and broken; it cannot be read.", is_retryable=True) from problem


MAX_BYTES = 5_000_000
"""After decompression. Results of a search are a hundredth of this."""
_MAX_ERROR_BYTES = 2_000


class JsonEndpoint:
    """A JSON service at one address. Redirects are not followed: the key must not reach another server."""

    def __init__(self, name: str, client: httpx2.AsyncClient) -> None:
        self._name = name
        self._client = client

    @classmethod
    def connect(cls, name: str, *, headers: Mapping[str, str], timeout: float = 30.0) -> "JsonEndpoint":
        """`timeout` is in seconds, for single reads; the caller limits the whole try."""
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
            raise ToolFailure(f"{self._name} cannot be reached: {reason}.", is_retryable=True) from failure

    async def _read(self, response: httpx2.Response) -> Any:
        is_success = response.status_code == httpx2.codes.OK
        content, is_truncated = await read_capped(response, MAX_BYTES if is_success else _MAX_ERROR_BYTES)
        if not is_success:
            wait = parse_retry_after(response.headers.get("retry-after"))
            text = content.decode("utf-8", "replace").strip()
            said = "" if text.startswith("<") else " ".join(text.split())[:200]
            raise http_failure(self._name, response.status_code, said=said, retry_after=wait)
        if is_truncated:
            raise ToolFailure(f"{self._name} answered with more than {MAX_BYTES:,} bytes; the reply is not read.")
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as problem:
            raise malformed_reply(self._name) from problem
