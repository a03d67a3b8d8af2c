"""`fetch_page`, `open` and `find`: the text of public web pages. They are off by default: a policy chooses the address.

Only public addresses are allowed; they are checked after resolution and then pinned. Nothing in a page is run or loaded.
"""

import asyncio
import codecs
import ipaddress
import re
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Protocol
from urllib.robotparser import RobotFileParser

import httpx2

from rubricem_env.domain.trajectory import Snippet, ToolCall, ToolResult, ToolStatus
from rubricem_env.llm.usage import Usage
from rubricem_env.tools.corpus_search import Corpus, Document, split_passages
from rubricem_env.tools.guard import ToolFailure, http_failure
from rubricem_env.tools.http import ACCEPT_ENCODING, read_capped
from rubricem_env.tools.pages.reader import PageReader, Unreadable
from rubricem_env.tools.spec import FETCH_PAGE_SPEC, FIND, OPEN, ToolSpec

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
    url: str, resolver: Resolver, *, ports: frozenset[int] = WEB_PORTS, exceptions: frozenset[str] = frozenset()
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
MAX_PDF_BYTES = 20_000_000
MAX_REDIRECTS = 5
MAX_PASSAGES = 4
_PASSAGE = 1_000
"""Characters of one snippet: about what a policy is shown of one."""
_KEPT_PAGES = 32
"""Pages that `open` and `find` need not fetch again."""
_TEXT_TYPES = frozenset({"text/plain", "text/markdown", "application/json"})
_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
_PDF_TYPE = "application/pdf"
_CHARSETS = re.compile(r"(?i)utf-?(?:8|16)|us-ascii|(?:iso-?8859|windows|cp|koi8|euc|gb|big|shift|iso-2022)[\w-]{0,14}")
_AGENT = "rubricem-fetch-page (research agent)"


class PageSource(Protocol):
    """Reads one page: by itself, or through a service."""

    async def read(self, url: str) -> Snippet:
        """The page at an address as one snippet; raises ToolFailure where it is blocked, unreachable, or not text."""
        ...

    async def aclose(self) -> None: ...


class PageFetcher:
    """A tool over pages, by its spec.

    `fetch_page` gives the passages nearest to what is looked for, `open` a part of a page, `find` the passages with
    some words. Fetchers that share a source share the pages that were read last.
    """

    model = ""
    fee = 0.0
    expected = Usage(calls=1)

    def __init__(self, source: PageSource | None = None, *, spec: ToolSpec = FETCH_PAGE_SPEC) -> None:
        self.spec = spec
        self._source = source or WebPages()

    async def answer(self, call: ToolCall) -> tuple[ToolResult, Usage]:
        """Read a page and choose passages of it.

        Raises:
            ToolFailure: blocked, unreachable, no success, or not text.
        """
        parameters = dict(call.parameters)
        page = await self._source.read(parameters["url"] if self.spec.name == FIND else call.query)
        passages = split_passages(page.text, _PASSAGE)
        chosen, summary = passages[:MAX_PASSAGES], ""
        if self.spec.name == OPEN:
            part, parts = int(parameters.get("part", 1)), max(1, -(-len(passages) // MAX_PASSAGES))
            if part > parts:
                raise ToolFailure(f"the page has {parts} parts; part {part} is not among them.")
            chosen, summary = passages[(part - 1) * MAX_PASSAGES :][:MAX_PASSAGES], f"Part {part} of {parts}."
        elif wanted := call.query if self.spec.name == FIND else parameters.get("about", ""):
            nearest = await asyncio.to_thread(_nearest, passages, wanted)
            chosen = nearest if nearest or self.spec.name == FIND else chosen
        snippets = [page.model_copy(update={"text": passage}) for passage in chosen]
        return ToolResult.found(snippets, summary if snippets else ""), self.expected

    async def aclose(self) -> None:
        """Close the source."""
        await self._source.aclose()


class WebPages:
    """Pages from the web, without cookies, proxies or keys; no connection is kept open."""

    def __init__(
        self,
        *,
        ports: frozenset[int] = WEB_PORTS,
        exceptions: frozenset[str] = frozenset(),
        resolver: Resolver = resolve,
        trust: ssl.SSLContext | None = None,
        robots: bool = False,
        host_delay: float = 0.0,
    ) -> None:
        """With `robots` a site's robots.txt is obeyed; `host_delay` seconds pass between two requests to one host."""
        self._ports = ports
        self._exceptions = exceptions
        self._resolver = resolver
        self._trust = trust or ssl.create_default_context()
        self._robots = robots
        self._host_delay = host_delay
        self._rules: dict[str, RobotFileParser] = {}
        self._next_request: dict[str, float] = {}
        self._kept: dict[str, Snippet] = {}
        self._reader = PageReader()

    async def read(self, url: str) -> Snippet:
        """The page, fetched once for several tools."""
        url = url.strip()
        # The page that was read last is the last.
        page = self._kept.pop(url, None) or await self._read(url)
        self._kept[url] = page
        if len(self._kept) > _KEPT_PAGES:
            del self._kept[next(iter(self._kept))]
        return page

    async def aclose(self) -> None:
        """End the reader processes."""
        await asyncio.to_thread(self._reader.close)

    async def _read(self, url: str) -> Snippet:
        address, body, media_type, charset = await self._fetch(url)
        if media_type in _TEXT_TYPES:
            return Snippet(text=body.decode(charset, "replace").strip(), url=address)
        try:
            title, text = await self._reader.read(body, "pdf" if media_type == _PDF_TYPE else "html", charset)
        except Unreadable as problem:
            raise ToolFailure(f"the page is not read: {problem}.") from problem
        return Snippet(text=text, title=title, url=address)

    async def _fetch(self, url: str) -> tuple[str, bytes, str, str]:
        """The address, the content, its type and charset. Each redirect is checked: it may lead to a private host."""
        for _ in range(MAX_REDIRECTS + 1):
            page, address = await pin(url, self._resolver, ports=self._ports, exceptions=self._exceptions)
            if self._robots:
                await self._obey_robots(page, address)
            content, media_type, charset = await self._get(page, address)
            if media_type:
                return str(page), content, media_type, charset
            url = content.decode()
        raise ToolFailure(f"the page redirects more than {MAX_REDIRECTS} times.")

    async def _obey_robots(self, page: httpx2.URL, address: str) -> None:
        """Raises ToolFailure, blocked, where robots.txt of the site forbids the page, or cannot be read now (RFC 9309)."""
        site = page.copy_with(path="/robots.txt", query=None, fragment=None)
        if str(site) not in self._rules:
            rules = RobotFileParser()
            try:
                content, media_type, charset = await self._get(site, address)
                rules.parse(content.decode(charset, "replace").splitlines() if media_type in _TEXT_TYPES else [])
            except ToolFailure as failure:
                if failure.is_retryable:
                    raise
                rules.parse([])  # a site without the file allows everything
            self._rules[str(site)] = rules
        if not self._rules[str(site)].can_fetch(_AGENT, str(page)):
            raise _blocked(f"robots.txt of {page.host[:100]!r} forbids it")

    async def _get(self, page: httpx2.URL, address: str) -> tuple[bytes, str, str]:
        """The content, its type and charset; for a redirect the new address, and no type."""
        if self._host_delay:
            now = time.monotonic()
            start = max(now, self._next_request.get(page.host, 0.0))
            self._next_request[page.host] = start + self._host_delay
            await asyncio.sleep(start - now)
        # A client for each request: a pool keeps connections by address, and two hosts may share one address.
        client = httpx2.AsyncClient(verify=self._trust, trust_env=False, follow_redirects=False, timeout=20.0)
        host = page.netloc.decode("ascii")
        headers = {"host": host, "accept-encoding": ACCEPT_ENCODING, "user-agent": _AGENT}
        try:
            async with client:
                pinned, extensions = page.copy_with(host=address), {"sni_hostname": page.host}
                request = client.build_request("GET", pinned, headers=headers, extensions=extensions)
                response = await client.send(request, stream=True)
                try:
                    return await _read_response(response, page)
                finally:
                    await response.aclose()
        except httpx2.InvalidURL as problem:
            raise ToolFailure("the page redirects to an invalid address.") from problem
        except httpx2.TransportError as failure:
            reason = f"{type(failure).__name__} {failure}".strip()
            raise ToolFailure(f"the page cannot be reached: {reason}.", is_retryable=True) from failure


async def _read_response(response: httpx2.Response, page: httpx2.URL) -> tuple[bytes, str, str]:
    if response.is_redirect and "location" in response.headers:
        return str(page.join(response.headers["location"])).encode(), "", ""
    if response.status_code != httpx2.codes.OK:
        raise http_failure("the page", response.status_code)
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in _TEXT_TYPES | _HTML_TYPES | {_PDF_TYPE}:
        raise ToolFailure(f"the page is {media_type[:50] or 'of no stated type'}; only text, HTML and PDF are read.")
    is_pdf = media_type == _PDF_TYPE
    body, is_cut = await read_capped(response, MAX_PDF_BYTES if is_pdf else MAX_BYTES)
    if is_pdf and is_cut:
        raise ToolFailure(f"the PDF is larger than {MAX_PDF_BYTES:,} bytes; it is not read.")
    return body, media_type, _codec(response.charset_encoding or "utf-8")


def _codec(charset: str) -> str:
    """The codec of a charset. Python has codecs that are not charsets, so only those of the web are allowed."""
    if not _CHARSETS.fullmatch(charset):
        return "utf-8"
    try:
        return codecs.lookup(charset).name
    except LookupError:
        return "utf-8"


def _nearest(passages: list[str], wanted: str) -> list[str]:
    """The passages nearest to some words, by BM25, the nearest first."""
    rows = [Document(id=str(row), title="", url="", text=passage) for row, passage in enumerate(passages)]
    found = Corpus(rows).search(wanted, limit=MAX_PASSAGES)
    return [passages[int(each.id)] for each in found]
