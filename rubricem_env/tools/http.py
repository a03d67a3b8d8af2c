"""HTTP replies with a size limit, JSON services with typed failures, and the search services of engines.py.

The limit counts bytes after decompression, so that a small compressed reply cannot become a large page.
"""

import json
import zlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar
from xml.etree import ElementTree

import httpx2
from pydantic import SecretStr, ValidationError

from rubricem_env.domain.trajectory import ToolCall, ToolResult
from rubricem_env.llm.http_failures import is_web_page
from rubricem_env.llm.limits.retry import parse_retry_after
from rubricem_env.llm.usage import Usage
from rubricem_env.tools.engines import ENGINES, WIRES
from rubricem_env.tools.failures import ToolFailure, http_failure, malformed_reply

Content = TypeVar("Content")
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
"""The most bytes of a reply, after decompression. Results of a search are a hundredth of this."""
_MAX_ERROR_BYTES = 2_000


class _Transport(httpx2.AsyncHTTPTransport):
    """Adds parameters to each address below the client, whose log names addresses: one of them may be a key."""

    def __init__(self, params: Mapping[str, str]) -> None:
        super().__init__(limits=httpx2.Limits(max_connections=None))
        self._params = dict(params)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self._params:
            url = request.url.copy_merge_params(self._params)
            request = httpx2.Request(
                request.method, url, headers=request.headers, stream=request.stream, extensions=request.extensions
            )
        return await super().handle_async_request(request)


def open_json_client(
    headers: Mapping[str, str] = MappingProxyType({}), params: Mapping[str, str] = MappingProxyType({})
) -> httpx2.AsyncClient:
    """A client of JSON services. Redirects are not followed: the key must not reach another server."""
    sent = {"accept-encoding": ACCEPT_ENCODING, "accept": "application/json, application/atom+xml", **headers}
    return httpx2.AsyncClient(headers=sent, timeout=30.0, transport=_Transport(params), follow_redirects=False)


def _parse_xml(content: bytes) -> Any:
    # Without a document type there are no entities, which could grow without limit.
    if b"<!DOCTYPE" in content:
        raise ValueError("a document type is not read")
    return ElementTree.fromstring(content)


async def ask_json(
    client: httpx2.AsyncClient,
    request: httpx2.Request,
    *,
    name: str,
    read: Callable[[Any], Content],
    parse: Callable[[bytes], Any] = json.loads,
) -> Content:
    """What `read` finds in the JSON value, or what else `parse` gives, of the reply; `name` is the service in messages.

    Raises:
        ToolFailure: no connection, no success, too large, no JSON, or JSON in which `read` misses a part.
    """
    try:
        response = await client.send(request, stream=True)
        try:
            content = await _read_reply(response, name, parse)
        finally:
            await response.aclose()
    except httpx2.TransportError as failure:
        reason = f"{type(failure).__name__} {failure}".strip()
        raise ToolFailure(f"{name} cannot be reached: {reason}.", is_retryable=True) from failure
    try:
        return read(content)
    except (AttributeError, KeyError, TypeError, ValidationError) as problem:
        raise malformed_reply(name) from problem


async def _read_reply(response: httpx2.Response, name: str, parse: Callable[[bytes], Any]) -> Any:
    is_success = response.status_code == httpx2.codes.OK
    content, is_truncated = await read_capped(response, MAX_BYTES if is_success else _MAX_ERROR_BYTES)
    if not is_success:
        wait = parse_retry_after(response.headers.get("retry-after"))
        text = content.decode("utf-8", "replace").strip()
        said = "" if text.startswith("<") else " ".join(text.split())
        raise http_failure(name, response.status_code, said=said, retry_after=wait)
    if is_truncated:
        raise ToolFailure(f"{name} answered with more than {MAX_BYTES:,} bytes; the reply is not read.")
    try:
        return parse(content)
    except (ValueError, RecursionError, ElementTree.ParseError) as problem:
        if is_web_page(content[:100].decode("utf-8", "replace")):
            message = f"{name} answered with a web page in place of JSON; its address may be wrong."
            raise ToolFailure(message, is_retryable=True) from None
        raise malformed_reply(name) from problem


class SearchEngine:
    """One service of `ENGINES` as a backend."""

    model = ""
    expected = Usage(calls=1)

    def __init__(
        self,
        engine: str,
        *,
        key: SecretStr | None = None,
        url: str = "",
        key_header: str = "",
        limit: int = 5,
        fee: float | None = None,
    ) -> None:
        """`limit` is the number of results where the call names none, `fee` is in dollars a call.

        `url` and `key_header` replace the service's own.
        """
        facts = ENGINES[engine]
        self._name = engine
        self._wire = WIRES[engine]
        self._limit = limit
        self.spec = facts.spec
        self.fee = facts.price / 1_000 if fee is None else fee
        self._url = (url or facts.url).rstrip("/")
        secret = key.get_secret_value() if key else ""
        header = key_header or facts.header
        given = {header or facts.parameter: f"Bearer {secret}" if header == "Authorization" else secret} if key else {}
        self._client = open_json_client(given) if header else open_json_client(params=given)

    async def answer(self, call: ToolCall) -> tuple[ToolResult, Usage]:
        """One request.

        Raises:
            ToolFailure: it failed.
        """
        parameters = dict(call.parameters)
        limit = int(parameters.get("limit", self._limit))
        wire_request = self._wire.ask(call.query, limit, parameters)
        request = self._client.build_request(
            "GET" if wire_request.body is None else "POST",
            self._url + wire_request.path,
            params=wire_request.params,
            json=wire_request.body,
        )
        parse = _parse_xml if self._wire.is_xml else json.loads
        result = await ask_json(self._client, request, name=self._name, read=self._wire.read, parse=parse)
        return result.model_copy(update={"snippets": result.snippets[:limit]}), self.expected

    async def aclose(self) -> None:
        await self._client.aclose()
