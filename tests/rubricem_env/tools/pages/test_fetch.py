"""The page fetcher: real pages on loopback, which is let through by name of its address alone."""

import asyncio
import gzip
import json
import time
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from rubricem_env.domain.trajectory import ToolCall, ToolStatus
from rubricem_env.testing.loopback import free_port, serve_loopback
from rubricem_env.tools.failures import ToolFailure
from rubricem_env.tools.http import read_capped
from rubricem_env.tools.pages.fetch import MAX_BYTES, PageFetcher, WebPages
from rubricem_env.tools.pages.public_addresses import is_public, pin
from rubricem_env.tools.pages.reader import PageReader, Unreadable
from rubricem_env.tools.pages.services import Crawl4aiPages, JinaPages
from rubricem_env.tools.spec import FETCH_PAGE_SPEC, FIND_SPEC, OPEN_SPEC

PDF = Path(__file__).parents[3] / "fixtures" / "pages" / "two_columns.pdf"

PRIVATE = {
    "loopback": "127.0.0.1 127.8.8.8 ::1",
    "private networks": "10.0.0.1 172.16.5.4 192.168.1.1 100.64.0.1 fc00::1 fec0::1",
    "link-local": "169.254.169.254 fe80::1 fe80::1%eth0",
    "metadata of clouds": "100.100.100.200 168.63.129.16 fd00:ec2::254",
    "reserved": "0.0.0.0 255.255.255.255 224.0.0.1 240.0.0.1 198.18.0.1 192.0.2.1 :: ff02::1 2001:db8::1",
    "IPv4 mapped or compatible": "::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::127.0.0.1",
    "NAT64": "64:ff9b::127.0.0.1 64:ff9b::a00:1 64:ff9b:1::a9fe:a9fe",
    "6to4": "2002:7f00:1:: 2002:a00:1::1",
    "no address": "nothing",
}
PUBLIC = "93.184.216.34 8.8.8.8 2606:2800:220:1:248:1893:25c8:1946 ::ffff:8.8.8.8"


@pytest.mark.parametrize("kind", PRIVATE)
def test_no_private_address_is_public(kind):
    assert [address for address in PRIVATE[kind].split() if is_public(address)] == []


def test_an_address_outside_is_public():
    assert all(map(is_public, PUBLIC.split()))


def resolver(*answers):
    """Resolves to the next of the answers, and the last one again and again."""
    left = list(answers)

    async def resolve(host, port):
        return left.pop(0) if len(left) > 1 else left[0]

    return resolve


async def fetch(query, source=None, /, *, spec=FETCH_PAGE_SPEC, **parameters):
    fetcher = PageFetcher(source or WebPages(resolver=resolver(["8.8.8.8"])), spec=spec)
    try:
        call = ToolCall(name=spec.name, query=query, parameters=tuple(parameters.items()))
        return (await fetcher.answer(call))[0]
    finally:
        await fetcher.aclose()


def pages_app(pages):
    """A web site: a response for each path."""

    def route(path, respond):
        async def endpoint(_):
            return respond()

        return Route(path, endpoint)

    return Starlette(routes=[route(path, respond) for path, respond in pages.items()])


async def read(app, path="/", *answers, settings=None, **parameters):
    """A page of a site on loopback, which is allowed by address and port alone."""
    with serve_loopback(pages_app({path: lambda: app}) if isinstance(app, Response) else app) as url:
        port = int(url.rsplit(":", 1)[1])
        site = resolver(*(answers or (["127.0.0.1"],)))
        source = WebPages(
            ports=frozenset({port}), exceptions=frozenset({"127.0.0.1"}), resolver=site, **(settings or {})
        )
        return await fetch(f"http://pages.example:{port}{path}", source, **parameters)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.org/x",
        "gopher://example.org",
        "javascript:alert(1)",
        "https://example.org:22/",
        "https://user:secret@example.org/",
    ],
)
async def test_anything_but_plain_web_is_blocked(url):
    with pytest.raises(ToolFailure) as caught:
        await fetch(url)
    assert caught.value.status is ToolStatus.BLOCKED


async def test_one_private_address_among_public_ones_is_blocked():
    with pytest.raises(ToolFailure, match=r"'example\.org' is not a public host"):
        await pin("https://example.org/", resolver(["8.8.8.8", "10.0.0.1"]))


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "2130706433", "0x7f.1", "127.1", "[::1]", "[::ffff:7f00:1]", "localhost"]
)
async def test_every_spelling_of_loopback_is_blocked(host):
    with pytest.raises(ToolFailure):
        await fetch(f"http://{host}/", WebPages())


@pytest.mark.parametrize(
    "words", ["no address at all", "", "http://", "https://[", "http://exa mple.org", "//example.org"]
)
async def test_text_that_is_no_address_is_refused(words):
    with pytest.raises(ToolFailure):
        await fetch(words)


async def test_a_page_is_read_as_text_with_its_title_and_address():
    html = "<title>River &amp; fox</title><script>steal()</script><p>The Tall Fox<br>is <b>60</b> m wide.</p>"
    result = await read(Response(html, media_type="text/html"), "/fox")
    assert result.snippets[0].title == "River & fox"
    assert result.snippets[0].text == "The Tall Fox\nis 60 m wide."
    assert result.snippets[0].url.startswith("http://pages.example:")


async def test_the_resolved_address_is_connected_to_and_the_host_kept():
    seen = []

    async def app(scope, receive, send):
        seen.append(dict(scope["headers"])[b"host"].decode().split(":")[0])
        await Response("ok", media_type="text/plain")(scope, receive, send)

    await read(app)
    assert seen == ["pages.example"]


@pytest.mark.parametrize(
    "target", ["http://169.254.169.254/latest/meta-data", "file:///etc/passwd", "http://localhost:22/"]
)
async def test_a_redirect_is_checked_as_any_address(target):
    with pytest.raises(ToolFailure) as caught:
        await read(RedirectResponse(target))
    assert caught.value.status is ToolStatus.BLOCKED


async def test_a_name_that_changes_its_address_is_checked_at_every_step():
    with pytest.raises(ToolFailure, match="not a public host"):
        await read(RedirectResponse("/next"), "/go", ["127.0.0.1"], ["10.0.0.1"])


def text(body=b"x", status=200, **headers):
    return Response(body, status, media_type="text/plain", headers=headers)


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (RedirectResponse("/"), "redirects more than 5 times"),
        (Response(b"x", media_type="application/pdf"), "the PDF is damaged"),
        (Response(b"x", media_type="video/mp4"), "only text, HTML and PDF are read"),
        (text(**{"content-encoding": "br"}), "which is not read"),
        (text(**{"content-encoding": "gzip, gzip"}), "which is not read"),
        (text(b"gone", 404), "404"),
    ],
)
async def test_what_is_no_readable_page_is_refused(page, said):
    with pytest.raises(ToolFailure, match=said):
        await read(page)


async def test_a_small_bomb_does_not_become_a_large_page():
    bomb = gzip.compress(b"word " * 20_000_000)
    assert len(bomb) < 200_000
    started = time.process_time()
    result = await read(text(bomb, **{"content-encoding": "gzip"}))
    assert result.status is ToolStatus.OK
    # 100 MB lie behind; 2 MB are inflated and four passages kept.
    assert sum(len(snippet.text) for snippet in result.snippets) <= 4_000 < MAX_BYTES
    assert time.process_time() - started < 5


async def test_a_server_that_is_not_there_is_an_error():
    port = free_port()
    source = WebPages(ports=frozenset({port}), exceptions=frozenset({"127.0.0.1"}))
    with pytest.raises(ToolFailure, match="cannot be reached"):
        await fetch(f"http://127.0.0.1:{port}/", source)


class Endless(httpx2.AsyncByteStream):
    """A body of a few bytes, compressed, with noise behind its end for as long as somebody reads."""

    def __init__(self):
        self.sent = 0

    async def __aiter__(self):
        yield gzip.compress(b"60 m")
        while self.sent < 1_000:
            self.sent += 1
            yield bytes(65_536)


async def test_what_comes_behind_the_end_of_a_compressed_page_is_not_kept():
    stream = Endless()
    content, _ = await read_capped(httpx2.Response(200, headers={"content-encoding": "gzip"}, stream=stream), MAX_BYTES)
    assert content == b"60 m"
    assert stream.sent == 0


HOSTILE = ["<", "<!--", "<a ", "</", "<script>", "<title>", "<p>", "&amp", "<![CDATA[", "<div><b>", "&#99999999999999;"]


@pytest.mark.parametrize("piece", HOSTILE)
async def test_a_hostile_page_costs_one_reader_at_most(piece):
    reader = PageReader(processes=1, seconds=5)
    try:
        with suppress(Unreadable):
            await reader.read((piece * (500_000 // len(piece))).encode(), "html")
        assert await reader.read(b"<title>next</title><p>60 m wide", "html") == ("next", "60 m wide")
    finally:
        reader.close()


async def test_a_page_that_takes_too_long_is_given_up_beside_the_event_loop():
    reader = PageReader(processes=1, seconds=0.0)
    try:
        with pytest.raises(Unreadable):
            await reader.read(b"<p>60 m", "html")
    finally:
        reader.close()


def test_a_reader_process_has_no_key(monkeypatch):
    monkeypatch.setenv("GEMINI_API_KEY", "secret")
    reader = PageReader(processes=1)
    assert reader.read_now(b"<p>x", "html") == ("", "x")
    environment = Path(f"/proc/{reader._processes._idle[0].pid}/environ").read_bytes()
    reader.close()
    assert b"secret" not in environment


MENU = "".join(f'<li><a href="/page/{number}">Entry {number}</a></li>' for number in range(150))
SENTENCES = [f"River number {number} is {number * 7 + 3} metres wide at low water." for number in range(60)]
PARAGRAPHS = "".join(f"<p>{sentence}</p>" for sentence in SENTENCES)
LAYOUTS = {
    "a manual": f"<nav><ul>{MENU}</ul></nav><main><h1>Rivers</h1>{PARAGRAPHS}</main>",
    "a wiki": f'<div id="mw-panel"><ul>{MENU}</ul></div>'
    f'<div id="mw-content-text" class="mw-body-content">{PARAGRAPHS}</div>',
    "a blog": '<div class="cookie-consent">We use cookies. Accept all.</div>'
    f'<aside class="sidebar"><ul>{MENU}</ul></aside>'
    f'<article class="post"><div class="entry-content">{PARAGRAPHS}</div></article>',
    "a table": f"<div class='menu'><ul>{MENU}</ul></div><table>"
    + "".join(f"<tr><td>{row}</td><td>{sentence}</td></tr>" for row, sentence in enumerate(SENTENCES))
    + "</table>",
    "a list": f"<nav><ul>{MENU}</ul></nav><ul>" + "".join(f"<li>{sentence}</li>" for sentence in SENTENCES) + "</ul>",
    "no layout at all": f"<ul>{MENU}</ul>" + "<br>".join(SENTENCES),
}


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_the_article_reaches_the_policy_and_its_menu_does_not(layout):
    page = Response(f"<title>Rivers</title><body>{LAYOUTS[layout]}</body>", media_type="text/html")
    result = await read(page, spec=OPEN_SPEC)
    shown = "\n".join(snippet.text for snippet in result.snippets)
    assert [sentence for sentence in SENTENCES if sentence not in shown] == []
    assert result.summary == "Part 1 of 1."
    assert "Entry 7" not in shown


async def test_the_passages_nearest_to_what_is_looked_for_come_first():
    page = Response(f"<main>{PARAGRAPHS}</main>", media_type="text/html")
    result = await read(page, about="How wide is river number 51?")
    assert SENTENCES[51] in result.snippets[0].text


async def test_words_are_found_within_a_page():
    pages = {"/rivers": lambda: Response(f"<main>{PARAGRAPHS}</main>", media_type="text/html")}
    with serve_loopback(pages_app(pages)) as site:
        port = int(site.rsplit(":", 1)[1])
        source = WebPages(ports=frozenset({port}), exceptions=frozenset({"127.0.0.1"}))
        found = await fetch("360 metres", source, spec=FIND_SPEC, url=f"{site}/rivers")
    assert SENTENCES[51] in found.snippets[0].text


async def test_a_part_that_a_page_does_not_have_is_an_error():
    with pytest.raises(ToolFailure, match="the page has 1 parts; part 2 is not among them"):
        await read(text(b"60 m"), spec=OPEN_SPEC, part="2")


async def test_a_pdf_of_two_columns_is_read():
    result = await read(Response(PDF.read_bytes(), media_type="application/pdf"))
    shown = " ".join(" ".join(snippet.text for snippet in result.snippets).split())
    assert result.snippets[0].title == "A survey of rivers"
    assert "The Tall Fox is 60 m wide at low water and 85 m at high water." in shown
    assert "The bridge was built in 2019 by the county." in shown


ROBOTS = "User-agent: *\nDisallow: /private"


async def test_a_page_that_the_site_closes_to_robots_is_blocked_where_that_is_asked():
    def site():
        return pages_app({"/robots.txt": lambda: text(ROBOTS.encode()), "/private": text, "/open": text})

    assert (await read(site(), "/private")).status is ToolStatus.OK
    assert (await read(site(), "/open", settings={"robots": True})).status is ToolStatus.OK
    with pytest.raises(ToolFailure, match=r"robots\.txt of 'pages\.example' forbids it") as caught:
        await read(site(), "/private", settings={"robots": True})
    assert caught.value.status is ToolStatus.BLOCKED


async def test_a_site_without_a_robots_file_is_open_and_one_that_fails_is_not():
    assert (await read(text(), settings={"robots": True})).status is ToolStatus.OK
    pages = {"/robots.txt": lambda: text(b"", 503), "/": text}
    with pytest.raises(ToolFailure, match="503"):
        await read(pages_app(pages), settings={"robots": True})


async def test_requests_to_one_host_keep_their_distance():
    times = []

    async def app(scope, receive, send):
        times.append(time.monotonic())
        await Response("ok", media_type="text/plain")(scope, receive, send)

    with serve_loopback(app) as url:
        port = int(url.rsplit(":", 1)[1])
        source = WebPages(ports=frozenset({port}), exceptions=frozenset({"127.0.0.1"}), host_delay=0.2)
        await asyncio.gather(source.read(f"{url}/1"), source.read(f"{url}/2"), source.read(f"{url}/3"))
        await source.aclose()
    assert max(times) - min(times) > 0.3  # two delays of 0.2 s, less a late first request


def reader_service(seen, reply):
    async def endpoint(scope, receive, send):
        body = await Request(scope, receive).body()
        seen.append((scope["path"], dict(scope["headers"]).get(b"authorization"), body))
        await JSONResponse(reply)(scope, receive, send)

    return endpoint


async def test_the_jina_reader_is_asked_for_a_page():
    seen = []
    reply = {
        "code": 200,
        "data": {"title": "Rivers", "url": "https://example.org/a", "content": "The Tall Fox is 60 m."},
    }
    with serve_loopback(reader_service(seen, reply)) as url:
        source = JinaPages(url, key=SecretStr("k"), resolver=resolver(["8.8.8.8"]))
        result = await fetch("https://example.org/a", source)
    assert result.snippets[0].text == "The Tall Fox is 60 m."
    assert (result.snippets[0].title, result.snippets[0].url) == ("Rivers", "https://example.org/a")
    assert seen == [("/https://example.org/a", b"Bearer k", b"")]


async def test_a_crawl4ai_server_is_asked_for_a_page():
    seen = []
    with serve_loopback(reader_service(seen, {"success": True, "markdown": "60 m"})) as url:
        result = await fetch("https://example.org/a", Crawl4aiPages(url, resolver=resolver(["8.8.8.8"])))
    assert result.snippets[0].text == "60 m"
    assert (seen[0][0], json.loads(seen[0][2])) == ("/md", {"url": "https://example.org/a", "f": "fit"})


@pytest.mark.parametrize(("reply", "said"), [({"success": False}, "could not read"), ({}, "unknown format")])
async def test_a_reader_that_fails_is_an_error(reply, said):
    with serve_loopback(reader_service([], reply)) as url, pytest.raises(ToolFailure, match=said):
        await fetch("https://example.org/a", Crawl4aiPages(url, resolver=resolver(["8.8.8.8"])))


async def test_a_private_address_does_not_reach_a_reader_service():
    seen = []
    with serve_loopback(reader_service(seen, {})) as url, pytest.raises(ToolFailure, match="not a public host"):
        await fetch("http://10.0.0.7/a", JinaPages(url))
    assert seen == []
