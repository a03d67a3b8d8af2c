"""`fetch_page`, `open` and `find`: the text of public web pages. They are off by default: a policy chooses the address.

Nothing in a page is run or loaded.
"""

import asyncio
import codecs
import re
import ssl
import time
from typing import NamedTuple, Protocol
from urllib.robotparser import RobotFileParser

import httpx2

from rubricem_env.domain.trajectory import Snippet, ToolCall, ToolResult
from rubricem_env.llm.usage import Usage
from rubricem_env.tools.corpus_search import Corpus, Document, split_passages
from rubricem_env.tools.failures import ToolFailure, http_failure
from rubricem_env.tools.http import ACCEPT_ENCODING, read_capped
from rubricem_env.tools.pages.public_addresses import WEB_PORTS, Resolver, blocked, pin, resolve
from rubricem_env.tools.pages.reader import Format, PageReader, Unreadable
from rubricem_env.tools.spec import FETCH_PAGE_SPEC, FIND, OPEN, ToolSpec

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


class _FetchedPage(NamedTuple):
    """A page as its server sent it."""

    address: str
    content: bytes
    media_type: str
    charset: str


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
        chosen = passages[:MAX_PASSAGES]
        summary = ""
        if self.spec.name == OPEN:
            part = int(parameters.get("part", 1))
            parts = max(1, -(-len(passages) // MAX_PASSAGES))
            if part > parts:
                raise ToolFailure(f"the page has {parts} parts; part {part} is not among them.")
            chosen = passages[(part - 1) * MAX_PASSAGES :][:MAX_PASSAGES]
            summary = f"Part {part} of {parts}."
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
        page = await self._fetch(url)
        if page.media_type in _TEXT_TYPES:
            return Snippet(text=page.content.decode(page.charset, "replace").strip(), url=page.address)
        try:
            format: Format = "pdf" if page.media_type == _PDF_TYPE else "html"
            title, text = await self._reader.read(page.content, format, page.charset)
        except Unreadable as problem:
            raise ToolFailure(f"the page is not read: {problem}.") from problem
        return Snippet(text=text, title=title, url=page.address)

    async def _fetch(self, url: str) -> _FetchedPage:
        """The page behind an address. Each redirect is checked: it may lead to a private host."""
        for _ in range(MAX_REDIRECTS + 1):
            page, address = await pin(url, self._resolver, ports=self._ports, exceptions=self._exceptions)
            if self._robots:
                await self._obey_robots(page, address)
            reply = await self._get(page, address)
            if isinstance(reply, _FetchedPage):
                return reply
            url = reply
        raise ToolFailure(f"the page redirects more than {MAX_REDIRECTS} times.")

    async def _obey_robots(self, page: httpx2.URL, address: str) -> None:
        """Raises ToolFailure, blocked, where robots.txt of the site forbids the page.

        So it does where that file cannot be read now (RFC 9309).
        """
        site = page.copy_with(path="/robots.txt", query=None, fragment=None)
        if str(site) not in self._rules:
            rules = RobotFileParser()
            try:
                reply = await self._get(site, address)
                lines = []
                if isinstance(reply, _FetchedPage) and reply.media_type in _TEXT_TYPES:
                    lines = reply.content.decode(reply.charset, "replace").splitlines()
                rules.parse(lines)
            except ToolFailure as failure:
                if failure.is_retryable:
                    raise
                rules.parse([])  # a site without the file allows everything
            self._rules[str(site)] = rules
        if not self._rules[str(site)].can_fetch(_AGENT, str(page)):
            raise blocked(f"robots.txt of {page.host[:100]!r} forbids it")

    async def _get(self, page: httpx2.URL, address: str) -> _FetchedPage | str:
        """The page; for a redirect the new address."""
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
                pinned = page.copy_with(host=address)
                extensions = {"sni_hostname": page.host}
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


async def _read_response(response: httpx2.Response, page: httpx2.URL) -> _FetchedPage | str:
    if response.is_redirect and "location" in response.headers:
        return str(page.join(response.headers["location"]))
    if response.status_code != httpx2.codes.OK:
        raise http_failure("the page", response.status_code)
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in _TEXT_TYPES | _HTML_TYPES | {_PDF_TYPE}:
        raise ToolFailure(f"the page is {media_type[:50] or 'of no stated type'}; only text, HTML and PDF are read.")
    is_pdf = media_type == _PDF_TYPE
    body, is_cut = await read_capped(response, MAX_PDF_BYTES if is_pdf else MAX_BYTES)
    if is_pdf and is_cut:
        raise ToolFailure(f"the PDF is larger than {MAX_PDF_BYTES:,} bytes; it is not read.")
    return _FetchedPage(str(page), body, media_type, _codec(response.charset_encoding or "utf-8"))


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
    nearest = Corpus(rows).search(wanted, limit=MAX_PASSAGES)
    return [passages[int(document.id)] for document in nearest]
