"""`fetch_page`: the text of one public page. Off unless asked for: it lets a policy choose what is connected to."""

import asyncio
import codecs
import re
import ssl
from typing import NamedTuple

import httpx2

from rubricem_env.domain.tool import Snippet, ToolCall, ToolResult, ToolStatus
from rubricem_env.tools.backend import Answer
from rubricem_env.tools.budget import Cost
from rubricem_env.tools.capped_body import ACCEPT_ENCODING, CappedBody, read_capped
from rubricem_env.tools.catalogue import FETCH_PAGE_SPEC
from rubricem_env.tools.failure import ToolFailure, http_failure
from rubricem_env.tools.page_text import PageText, read_page
from rubricem_env.tools.web_address import AddressRules, PinnedAddress, Resolver, pin, resolve

MAX_BYTES = 2_000_000
MAX_REDIRECTS = 5
MAX_PASSAGES = 4
_PASSAGE = 1_000
"""Characters of one snippet: about what a policy is shown of one."""
_TEXT_TYPES = frozenset({"text/plain", "text/markdown", "application/json"})
_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
_CHARSETS = re.compile(r"(?i)utf-?(?:8|16)|us-ascii|(?:iso-?8859|windows|cp|koi8|euc|gb|big|shift|iso-2022)[\w-]{0,14}")
_AGENT = "rubricem-fetch-page (research agent)"


class _Page(NamedTuple):
    address: PinnedAddress
    media_type: str
    charset: str
    body: CappedBody


class PageFetcher:
    """One page a call, without cookies, proxies or keys; no connection outlives it."""

    spec = FETCH_PAGE_SPEC
    expected_cost = Cost()

    def __init__(
        self, *, rules: AddressRules | None = None, resolver: Resolver = resolve, trust: ssl.SSLContext | None = None
    ) -> None:
        self._rules = rules or AddressRules()
        self._resolver = resolver
        self._trust = trust or ssl.create_default_context()

    async def answer(self, call: ToolCall) -> Answer:
        """Fetch, read, and cut into passages.

        Raises:
            ToolFailure: blocked, unreachable, no success, or not text.
        """
        page = await self._fetch(call.query)
        # In a thread: a page of nothing but brackets takes seconds to read, in which all other episodes would stand still.
        text = await asyncio.to_thread(_read, page)
        passages = _passages(text.text)
        url = str(page.address.url)
        snippets = tuple(Snippet(text=passage, title=text.title, url=url) for passage in passages)
        return Answer(ToolResult(status=ToolStatus.OK if snippets else ToolStatus.EMPTY, snippets=snippets))

    async def aclose(self) -> None:
        """Nothing is kept open."""

    async def _fetch(self, url: str) -> _Page:
        """Follow redirects by hand, since each may lead inside."""
        for _ in range(MAX_REDIRECTS + 1):
            address = await pin(url, self._rules, self._resolver)
            try:
                step = await self._get(address)
            except httpx2.InvalidURL as problem:
                raise ToolFailure("the page redirects to what is no address.") from problem
            except httpx2.TransportError as failure:
                reason = f"{type(failure).__name__} {failure}".strip()
                raise ToolFailure(f"the page cannot be reached: {reason}.", passes=True) from failure
            if isinstance(step, _Page):
                return step
            url = step
        raise ToolFailure(f"the page redirects more than {MAX_REDIRECTS} times.")

    async def _get(self, address: PinnedAddress) -> _Page | str:
        """The page, or where it redirects to."""
        # A client for each request: pooled connections are told apart by address, and two hosts may share one.
        client = httpx2.AsyncClient(verify=self._trust, trust_env=False, follow_redirects=False, timeout=20.0)
        host = address.url.netloc.decode("ascii")
        headers = {"host": host, "accept-encoding": ACCEPT_ENCODING, "user-agent": _AGENT}
        async with client:
            extensions = {"sni_hostname": address.url.host}
            request = client.build_request("GET", address.pinned_url, headers=headers, extensions=extensions)
            response = await client.send(request, stream=True)
            try:
                return await _read_response(response, address)
            finally:
                await response.aclose()


async def _read_response(response: httpx2.Response, address: PinnedAddress) -> _Page | str:
    if response.is_redirect and "location" in response.headers:
        return str(address.url.join(response.headers["location"]))
    if response.status_code != httpx2.codes.OK:
        raise http_failure("the page", response.status_code)
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in _TEXT_TYPES | _HTML_TYPES:
        raise ToolFailure(f"the page is {media_type[:50] or 'of no stated type'}; only text and HTML are read.")
    charset = response.charset_encoding or "utf-8"
    return _Page(address, media_type, charset, await read_capped(response, MAX_BYTES))


def _read(page: _Page) -> PageText:
    text = page.body.content.decode(_codec(page.charset), "replace")
    return read_page(text) if page.media_type in _HTML_TYPES else PageText("", text.strip())


def _codec(charset: str) -> str:
    """Python knows codecs that are no charsets; only those of the web are taken."""
    if not _CHARSETS.fullmatch(charset):
        return "utf-8"
    try:
        return codecs.lookup(charset).name
    except LookupError:
        return "utf-8"


def _passages(text: str) -> list[str]:
    """The beginning of a text in pieces that end at lines or words."""
    passages: list[str] = []
    rest = text
    while rest and len(passages) < MAX_PASSAGES:
        cut = len(rest) if len(rest) <= _PASSAGE else _last_break(rest)
        passages.append(rest[:cut].strip())
        rest = rest[cut : cut + _PASSAGE * MAX_PASSAGES].strip()
    return [passage for passage in passages if passage]


def _last_break(text: str) -> int:
    for mark in ("\n", ". ", " "):
        place = text.rfind(mark, _PASSAGE // 2, _PASSAGE)
        if place > 0:
            return place + len(mark)
    return _PASSAGE
