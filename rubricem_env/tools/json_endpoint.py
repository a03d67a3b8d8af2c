"""A JSON service behind one address: asks, reads no more than a cap, and raises typed failures."""

import json
from collections.abc import Mapping
from typing import Any

import httpx2

from rubricem_env.llm.retry import parse_retry_after
from rubricem_env.tools.capped_body import ACCEPT_ENCODING, read_capped
from rubricem_env.tools.failure import ToolFailure, http_failure, malformed_reply

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
