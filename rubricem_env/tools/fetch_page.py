"""`fetch_page`: the text of one public page. Off unless asked for: it lets a policy choose what is connected to.

The readable text of an HTML page, in one pass of linear time: nothing is run, nothing is loaded.

Which addresses of the web may be asked: public ones alone, checked after resolution and then pinned.
"""

import asyncio
import codecs
import html
import ipaddress
import re
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import httpx2

from rubricem_env.domain.trajectory import Snippet, ToolCall, ToolResult, ToolStatus
from rubricem_env.tools.guard import Answer, CallCost, ToolFailure, http_failure
from rubricem_env.tools.http import ACCEPT_ENCODING, CappedBody, read_capped
from rubricem_env.tools.spec import FETCH_PAGE_SPEC

_TAG_NAME = re.compile(r"</?([a-zA-Z][a-zA-Z0-9]{0,30})")
_SKIPPED = frozenset(
    {"script", "style", "noscript", "template", "svg", "iframe", "object", "textarea", "select", "title"}
)
_SKIP_ENDS = {name: re.compile(rf"</{name}", re.IGNORECASE | re.ASCII) for name in _SKIPPED}
_INLINE = frozenset(
    {"a", "abbr", "b", "cite", "code", "em", "font", "i", "mark", "q", "small", "span", "strong", "sub", "sup", "u"}
)
_ENDLESS_NUMBER = re.compile(r"&#[0-9]{20,};?")
"""A character by a number that Python refuses to read once it has thousands of digits."""
_SPACES = re.compile(r"[^\S\n]+")
_BREAKS = re.compile(r"\s*\n\s*")


class PageText(NamedTuple):
    """What a reader would read."""

    title: str
    text: str


def read_page(source: str) -> PageText:
    """Text without markup, scripts and styles; a line for each block."""
    pieces: list[str] = []
    title = ""
    at = 0
    while True:
        opening = source.find("<", at)
        if opening < 0:
            pieces.append(source[at:])
            break
        pieces.append(source[at:opening])
        step = _read_markup(source, opening)
        pieces.append(step.shown)
        title = title or step.title
        if step.end < 0:
            break
        at = step.end
    return PageText(_tidy(title).replace("\n", " "), _tidy("".join(pieces)))


class _Step(NamedTuple):
    end: int
    """Where reading goes on; -1 where the page breaks off."""
    shown: str = ""
    title: str = ""


def _read_markup(source: str, opening: int) -> _Step:
    """One comment, tag or element to skip, from its `<`. Whatever is never closed ends the page: no search is repeated."""
    if source.startswith("<!--", opening):
        end = source.find("-->", opening + 4)
        return _Step(end + 3 if end >= 0 else -1)
    found = _TAG_NAME.match(source, opening)
    if found is None and source[opening + 1 : opening + 2] not in ("!", "?"):
        return _Step(opening + 1, "<")
    end = source.find(">", opening)
    if end < 0:
        return _Step(-1)
    name = found[1].lower() if found else ""
    if name in _SKIPPED and source[opening + 1] != "/":
        return _skip(source, name, end + 1)
    return _Step(end + 1, "" if name in _INLINE else "\n")


def _skip(source: str, name: str, start: int) -> _Step:
    end = _SKIP_ENDS[name].search(source, start)
    if end is None:
        return _Step(-1)
    return _Step(end.start(), title=source[start : end.start()] if name == "title" else "")


def _tidy(text: str) -> str:
    return _BREAKS.sub("\n", _SPACES.sub(" ", html.unescape(_ENDLESS_NUMBER.sub("\ufffd", text)))).strip()


Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], Awaitable[list[str]]]

_NAT64 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_METADATA = frozenset({ipaddress.ip_address("168.63.129.16"), ipaddress.ip_address("192.0.0.192")})
"""Services of clouds to their own machines, at addresses that count as public."""


class AddressRules(NamedTuple):
    """What may be asked."""

    ports: frozenset[int] = frozenset({80, 443})
    exceptions: frozenset[str] = frozenset()
    """Addresses that are let through although they are not public: for a site of one's own, one by one."""


class PinnedAddress(NamedTuple):
    """A page's address, and the one that its host was resolved to: connect to that and to no other."""

    url: httpx2.URL
    address: str

    @property
    def pinned_url(self) -> httpx2.URL:
        """The same page with the resolved address in place of the name."""
        return self.url.copy_with(host=self.address)


async def resolve(host: str, port: int) -> list[str]:
    """The system's resolver, beside the event loop."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


async def pin(url: str, rules: AddressRules, resolver: Resolver) -> PinnedAddress:
    """Check an address and resolve it once.

    Raises:
        ToolFailure: blocked, if the scheme, the port, or any address of the host is not allowed.
    """
    parsed = _parse(url, rules)
    port = _port(parsed)
    try:
        addresses = await resolver(parsed.host, port)
    except (OSError, UnicodeError) as failure:
        raise ToolFailure(f"the host {parsed.host[:100]!r} is not known.") from failure
    if not addresses:
        raise ToolFailure(f"the host {parsed.host[:100]!r} has no address.")
    # All of them, not the first: a name with one private address is an attack or a mistake.
    for address in addresses:
        if address not in rules.exceptions and not is_public(address):
            raise _blocked(f"{parsed.host[:100]!r} is not a public host")
    return PinnedAddress(parsed, addresses[0])


def is_public(written: str) -> bool:
    """Whether an address lies in the open internet, also in whatever IPv4 address it wraps."""
    try:
        address: Address = ipaddress.ip_address(written)
    except ValueError:
        return False
    return _is_open(address) and all(_is_open(inner) for inner in _wrapped(address))


def _is_open(address: Address) -> bool:
    closed = address.is_multicast or address.is_reserved or address.is_unspecified or address in _METADATA
    site_local = isinstance(address, ipaddress.IPv6Address) and address.is_site_local
    # A mapped address is not global by itself; what it wraps decides.
    mapped = isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None
    return mapped or (address.is_global and not closed and not site_local)


def _wrapped(address: Address) -> list[ipaddress.IPv4Address]:
    if isinstance(address, ipaddress.IPv4Address):
        return []
    inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _COMPATIBLE or any(address in network for network in _NAT64):
        inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [each for each in inner if each is not None]


def _parse(url: str, rules: AddressRules) -> httpx2.URL:
    try:
        parsed = httpx2.URL(url.strip())
    except (httpx2.InvalidURL, UnicodeError, ValueError) as problem:
        raise ToolFailure(
            f"{url[:100]!r} is not a web address; write one such as https://example.org/page."
        ) from problem
    if parsed.scheme not in ("http", "https"):
        raise _blocked(f"{parsed.scheme[:20] or 'no scheme'!r} is not http or https")
    if not parsed.host:
        raise ToolFailure(f"{url[:100]!r} names no host; write an address such as https://example.org/page.")
    if parsed.userinfo:
        raise _blocked("the address holds a user name or a password")
    if _port(parsed) not in rules.ports:
        raise _blocked(f"port {_port(parsed)} is not among {', '.join(map(str, sorted(rules.ports)))}")
    return parsed


def _port(url: httpx2.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def _blocked(reason: str) -> ToolFailure:
    return ToolFailure(f"the page is not fetched: {reason}.", status=ToolStatus.BLOCKED)


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
    expected_cost = CallCost()

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
