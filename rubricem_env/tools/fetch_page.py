"""`fetch_page`: the text of one public web page. It is off by default, because a policy chooses the address.

Only public addresses are allowed; they are checked after resolution and then pinned. HTML is read in one pass of linear
time; nothing in a page is run or loaded.
"""

import asyncio
import codecs
import html
import ipaddress
import re
import socket
import ssl
from collections.abc import Awaitable, Callable

import httpx2

from rubricem_env.domain.trajectory import Snippet, ToolCall, ToolResult, ToolStatus
from rubricem_env.llm.usage import Usage
from rubricem_env.tools.guard import ToolFailure, http_failure
from rubricem_env.tools.http import ACCEPT_ENCODING, read_capped
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
"""A character reference whose number Python refuses to read once it has thousands of digits."""
_SPACES = re.compile(r"[^\S\n]+")
_BREAKS = re.compile(r"\s*\n\s*")


def read_page(source: str) -> tuple[str, str]:
    """The title and the text of an HTML page, without markup, scripts and styles; a line for each block."""
    pieces: list[str] = []
    title = ""
    at = 0
    while True:
        opening = source.find("<", at)
        if opening < 0:
            pieces.append(source[at:])
            break
        pieces.append(source[at:opening])
        at, name, shown = _read_markup(source, opening)
        pieces.append(shown)
        if name in _SKIPPED:
            closing = _SKIP_ENDS[name].search(source, at)
            if closing is None:
                break
            if name == "title":
                title = title or source[at : closing.start()]
            at = closing.start()
        if at < 0:
            break
    return _tidy(title).replace("\n", " "), _tidy("".join(pieces))


def _read_markup(source: str, opening: int) -> tuple[int, str, str]:
    """One comment or tag from its `<`: where it ends, the name of an opening tag, and the text that it stands for.

    A tag that is never closed ends the page, at -1, so that no search is repeated.
    """
    if source.startswith("<!--", opening):
        end = source.find("-->", opening + 4)
        return (end + 3 if end >= 0 else -1), "", ""
    found = _TAG_NAME.match(source, opening)
    if found is None and source[opening + 1 : opening + 2] not in ("!", "?"):
        return opening + 1, "", "<"
    end = source.find(">", opening)
    name = found[1].lower() if found else ""
    if end < 0:
        return -1, "", ""
    if name in _SKIPPED and source[opening + 1] != "/":
        return end + 1, name, ""
    return end + 1, "", "" if name in _INLINE else "\n"


def _tidy(text: str) -> str:
    return _BREAKS.sub("\n", _SPACES.sub(" ", html.unescape(_ENDLESS_NUMBER.sub("\ufffd", text)))).strip()


Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], Awaitable[list[str]]]

_NAT64 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_METADATA = frozenset({ipaddress.ip_address("168.63.129.16"), ipaddress.ip_address("192.0.0.192")})
"""Metadata services of cloud providers, at addresses that count as public."""


WEB_PORTS = frozenset({80, 443})


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host, from the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


async def pin(
    url: str,
    resolver: Resolver,
    *,
    ports: frozenset[int] = WEB_PORTS,
    exceptions: frozenset[str] = frozenset(),
) -> tuple[httpx2.URL, str]:
    """Check a page's address and resolve its host once. Connect to the returned address only.

    `exceptions` are addresses that are allowed although they are not public, such as those of your own site.

    Raises:
        ToolFailure: blocked, if the scheme, the port, or any address of the host is not allowed.
    """
    parsed = _parse(url, ports)
    try:
        addresses = await resolver(parsed.host, _port(parsed))
    except (OSError, UnicodeError) as failure:
        raise ToolFailure(f"the host {parsed.host[:100]!r} is not known.") from failure
    if not addresses:
        raise ToolFailure(f"the host {parsed.host[:100]!r} has no address.")
    # All of them, not the first: a name with one private address is an attack or a mistake.
    for address in addresses:
        if address not in exceptions and not is_public(address):
            raise _blocked(f"{parsed.host[:100]!r} is not a public host")
    return parsed, addresses[0]


def is_public(written: str) -> bool:
    """Whether an address is on the public internet, and so is any IPv4 address that it contains."""
    try:
        address: Address = ipaddress.ip_address(written)
    except ValueError:
        return False
    return _is_open(address) and all(_is_open(inner) for inner in _wrapped(address))


def _is_open(address: Address) -> bool:
    closed = address.is_multicast or address.is_reserved or address.is_unspecified or address in _METADATA
    site_local = isinstance(address, ipaddress.IPv6Address) and address.is_site_local
    # A mapped address is not global by itself; the IPv4 address inside decides.
    mapped = isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None
    return mapped or (address.is_global and not closed and not site_local)


def _wrapped(address: Address) -> list[ipaddress.IPv4Address]:
    if isinstance(address, ipaddress.IPv4Address):
        return []
    inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _COMPATIBLE or any(address in network for network in _NAT64):
        inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [each for each in inner if each is not None]


def _parse(url: str, ports: frozenset[int]) -> httpx2.URL:
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
    if _port(parsed) not in ports:
        raise _blocked(f"port {_port(parsed)} is not among {', '.join(map(str, sorted(ports)))}")
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


class PageFetcher:
    """One page a call, without cookies, proxies or keys; no connection is kept open."""

    spec = FETCH_PAGE_SPEC
    model = ""
    fee = 0.0
    expected = Usage(calls=1)

    def __init__(
        self,
        *,
        ports: frozenset[int] = WEB_PORTS,
        exceptions: frozenset[str] = frozenset(),
        resolver: Resolver = resolve,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self._ports = ports
        self._exceptions = exceptions
        self._resolver = resolver
        self._trust = trust or ssl.create_default_context()

    async def answer(self, call: ToolCall) -> tuple[ToolResult, Usage]:
        """Fetch a page and split its text into passages.

        Raises:
            ToolFailure: blocked, unreachable, no success, or not text.
        """
        url, decoded, is_html = await self._fetch(call.query)
        # In a thread: a page of nothing but brackets takes seconds to read, and would block all other episodes.
        title, text = await asyncio.to_thread(read_page, decoded) if is_html else ("", decoded.strip())
        snippets = tuple(Snippet(text=passage, title=title, url=url) for passage in _passages(text))
        return ToolResult(status=ToolStatus.OK if snippets else ToolStatus.EMPTY, snippets=snippets), self.expected

    async def aclose(self) -> None:
        """Nothing is kept open."""

    async def _fetch(self, url: str) -> tuple[str, str, bool]:
        """The address, the content, and whether that is HTML. Each redirect is checked: it may lead to a private host."""
        for _ in range(MAX_REDIRECTS + 1):
            page, address = await pin(url, self._resolver, ports=self._ports, exceptions=self._exceptions)
            try:
                content, media_type = await self._get(page, address)
            except httpx2.InvalidURL as problem:
                raise ToolFailure("the page redirects to an invalid address.") from problem
            except httpx2.TransportError as failure:
                reason = f"{type(failure).__name__} {failure}".strip()
                raise ToolFailure(f"the page cannot be reached: {reason}.", is_retryable=True) from failure
            if media_type:
                return str(page), content, media_type in _HTML_TYPES
            url = content
        raise ToolFailure(f"the page redirects more than {MAX_REDIRECTS} times.")

    async def _get(self, page: httpx2.URL, address: str) -> tuple[str, str]:
        """The content and its type; for a redirect the new address, and no type."""
        # A client for each request: a pool keeps connections by address, and two hosts may share one address.
        client = httpx2.AsyncClient(verify=self._trust, trust_env=False, follow_redirects=False, timeout=20.0)
        host = page.netloc.decode("ascii")
        headers = {"host": host, "accept-encoding": ACCEPT_ENCODING, "user-agent": _AGENT}
        async with client:
            pinned, extensions = page.copy_with(host=address), {"sni_hostname": page.host}
            request = client.build_request("GET", pinned, headers=headers, extensions=extensions)
            response = await client.send(request, stream=True)
            try:
                return await _read_response(response, page)
            finally:
                await response.aclose()


async def _read_response(response: httpx2.Response, page: httpx2.URL) -> tuple[str, str]:
    if response.is_redirect and "location" in response.headers:
        return str(page.join(response.headers["location"])), ""
    if response.status_code != httpx2.codes.OK:
        raise http_failure("the page", response.status_code)
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in _TEXT_TYPES | _HTML_TYPES:
        raise ToolFailure(f"the page is {media_type[:50] or 'of no stated type'}; only text and HTML are read.")
    body, _ = await read_capped(response, MAX_BYTES)
    return body.decode(_codec(response.charset_encoding or "utf-8"), "replace"), media_type


def _codec(charset: str) -> str:
    """The codec of a charset. Python has codecs that are not charsets, so only those of the web are allowed."""
    if not _CHARSETS.fullmatch(charset):
        return "utf-8"
    try:
        return codecs.lookup(charset).name
    except LookupError:
        return "utf-8"


def _passages(text: str) -> list[str]:
    """The beginning of a text in passages that end at lines or words."""
    passages: list[str] = []
    rest = text
    while rest and len(passages) < MAX_PASSAGES:
        end = len(rest) if len(rest) <= _PASSAGE else _last_break(rest)
        passages.append(rest[:end].strip())
        rest = rest[end : end + _PASSAGE * MAX_PASSAGES].strip()
    return [passage for passage in passages if passage]


def _last_break(text: str) -> int:
    for mark in ("\n", ". ", " "):
        index = text.rfind(mark, _PASSAGE // 2, _PASSAGE)
        if index > 0:
            return index + len(mark)
    return _PASSAGE
