"""The page fetcher: real pages on loopback, which is let through by name of its address alone."""

import gzip
import socket
import threading
import time

import httpx2
import pytest
from hypothesis import given, strategies as st
from starlette.responses import RedirectResponse, Response

from rubricem_env.domain.trajectory import ToolCall, ToolStatus
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.testing.servers import pages_app
from rubricem_env.tools import fetch_page
from rubricem_env.tools.fetch_page import MAX_BYTES, PageFetcher, is_public, pin, read_page
from rubricem_env.tools.guard import ToolFailure
from rubricem_env.tools.http import read_capped

PRIVATE = [
    "127.0.0.1",
    "127.8.8.8",
    "10.0.0.1",
    "172.16.5.4",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "100.100.100.200",
    "168.63.129.16",
    "0.0.0.0",
    "255.255.255.255",
    "224.0.0.1",
    "240.0.0.1",
    "198.18.0.1",
    "192.0.2.1",
    "::1",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd00:ec2::254",
    "fec0::1",
    "ff02::1",
    "2001:db8::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::127.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::a00:1",
    "64:ff9b:1::a9fe:a9fe",
    "2002:7f00:1::",
    "2002:a00:1::1",
    "not an address",
]
PUBLIC = ["93.184.216.34", "8.8.8.8", "2606:2800:220:1:248:1893:25c8:1946", "::ffff:8.8.8.8"]


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_inside_is_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_an_address_outside_is_public(address):
    assert is_public(address)


LOOPBACK = frozenset({"127.0.0.1"})


def resolver(*addresses):
    async def resolve(host, port):
        return list(addresses)

    return resolve


async def refusal(url: str, *addresses: str) -> ToolFailure:
    with pytest.raises(ToolFailure) as caught:
        await pin(url, resolver(*(addresses or ("8.8.8.8",))))
    return caught.value


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
    assert (await refusal(url)).status is ToolStatus.BLOCKED


async def test_one_private_address_among_public_ones_is_blocked():
    failure = await refusal("https://example.org/", "8.8.8.8", "10.0.0.1")
    assert str(failure) == "the page is not fetched: 'example.org' is not a public host."


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "2130706433", "0x7f.1", "127.1", "[::1]", "[::ffff:7f00:1]", "localhost"]
)
async def test_every_spelling_of_loopback_is_blocked(host):
    result = await fetch(f"http://{host}/", PageFetcher())
    assert result.is_error


async def fetch(url: str, fetcher: PageFetcher) -> ToolStatus:
    try:
        return (await fetcher.answer(ToolCall(name="fetch_page", query=url)))[0].status
    except ToolFailure as failure:
        return failure.status


@pytest.mark.parametrize(
    "words", ["no address at all", "", "http://", "https://[", "http://exa mple.org", "//example.org"]
)
async def test_what_is_no_address_is_one_sentence(words):
    with pytest.raises(ToolFailure):
        await PageFetcher(resolver=resolver("8.8.8.8")).answer(ToolCall(name="fetch_page", query=words))


def site_fetcher(url: str, *addresses: str) -> PageFetcher:
    """Lets one loopback address through, by name, for the port of the test's site."""
    port = int(url.rsplit(":", 1)[1])
    return PageFetcher(ports=frozenset({port}), exceptions=LOOPBACK, resolver=resolver(*(addresses or ("127.0.0.1",))))


async def read(path: str, page: Response, **others):
    pages = {path: lambda: page, **{f"/{name}": (lambda p=p: p) for name, p in others.items()}}
    with serve_loopback(pages_app(pages)) as url:
        port = url.rsplit(":", 1)[1]
        call = ToolCall(name="fetch_page", query=f"http://pages.example:{port}{path}")
        return (await site_fetcher(url).answer(call))[0]


async def test_a_page_is_read_as_text_with_its_title_and_address():
    html = "<title>River &amp; fox</title><script>steal()</script><p>The Tall Fox<br>is <b>60</b> m wide.</p>"
    result = await read("/fox", Response(html, media_type="text/html"))
    assert result.snippets[0].title == "River & fox"
    assert result.snippets[0].text == "The Tall Fox\nis 60 m wide."
    assert result.snippets[0].url.startswith("http://pages.example:")


async def test_the_resolved_address_is_connected_to_and_the_host_kept():
    seen = []

    async def app(scope, receive, send):
        seen.append(dict(scope["headers"])[b"host"].decode())
        await Response("ok", media_type="text/plain")(scope, receive, send)

    with serve_loopback(app) as url:
        port = url.rsplit(":", 1)[1]
        await site_fetcher(url).answer(ToolCall(name="fetch_page", query=f"http://pages.example:{port}/"))
    assert seen == [f"pages.example:{port}"]


@pytest.mark.parametrize(
    "target", ["http://169.254.169.254/latest/meta-data", "file:///etc/passwd", "http://localhost:22/"]
)
async def test_a_redirect_is_checked_as_any_address(target):
    with pytest.raises(ToolFailure) as caught:
        await read("/go", RedirectResponse(target))
    assert caught.value.status is ToolStatus.BLOCKED


async def test_a_name_that_changes_its_address_is_checked_at_every_step():
    answers = iter([["127.0.0.1"], ["10.0.0.1"]])

    async def rebinding(host, port):
        return next(answers)

    with serve_loopback(pages_app({"/go": lambda: RedirectResponse("/next")})) as url:
        port = int(url.rsplit(":", 1)[1])
        fetcher = PageFetcher(ports=frozenset({port}), exceptions=LOOPBACK, resolver=rebinding)
        with pytest.raises(ToolFailure, match="not a public host"):
            await fetcher.answer(ToolCall(name="fetch_page", query=f"http://pages.example:{port}/go"))


async def test_redirects_have_an_end():
    with pytest.raises(ToolFailure, match="redirects more than 5 times"):
        await read("/go", RedirectResponse("/go"))


@pytest.mark.parametrize("media_type", ["application/pdf", "image/png", "application/octet-stream", "video/mp4"])
async def test_other_types_are_refused(media_type):
    with pytest.raises(ToolFailure, match="only text and HTML are read"):
        await read("/file", Response(b"x", media_type=media_type))


async def test_a_small_bomb_does_not_become_a_large_page():
    bomb = gzip.compress(b"word " * 20_000_000)
    assert len(bomb) < 200_000
    started = time.process_time()
    result = await read("/bomb", Response(bomb, media_type="text/plain", headers={"content-encoding": "gzip"}))
    assert result.status is ToolStatus.OK
    # 100 MB lie behind; 2 MB are inflated and four passages kept.
    assert sum(len(snippet.text) for snippet in result.snippets) <= 4_000 < MAX_BYTES
    assert time.process_time() - started < 5


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip"])
async def test_a_compression_that_was_not_asked_for_is_refused(encoding):
    with pytest.raises(ToolFailure, match="which is not read"):
        await read("/odd", Response(b"x", media_type="text/plain", headers={"content-encoding": encoding}))


async def test_a_missing_page_is_an_error():
    with pytest.raises(ToolFailure, match="404"):
        await read("/x", Response("gone", status_code=404))


async def test_nobody_there_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    fetcher = PageFetcher(ports=frozenset({port}), exceptions=LOOPBACK)
    with pytest.raises(ToolFailure, match="cannot be reached"):
        await fetcher.answer(ToolCall(name="fetch_page", query=f"http://127.0.0.1:{port}/"))


@given(st.text(alphabet=st.sampled_from("<>/!-abst&;\"' \ncriptle"), max_size=300))
def test_any_markup_gives_text(source):
    _, text = read_page(source)
    assert text == text.strip()


@pytest.mark.parametrize("piece", ["<", "<!--", "<a ", "</", "<script>", "<title>", "<p>", "&amp", "<![CDATA["])
def test_hostile_markup_takes_linear_time(piece):
    # The thread's own time, which a busy machine does not stretch; what is quadratic takes hours.
    started = time.thread_time()
    read_page(piece * (250_000 // len(piece)))
    assert time.thread_time() - started < 10


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


@pytest.mark.parametrize(("number", "shown"), [("9" * 5_000, "\ufffd"), ("9" * 20, "\ufffd"), ("0065", "A")])
def test_a_character_by_a_number_of_any_length_is_read(number, shown):
    assert read_page(f"<p>a &#{number}; b")[1] == f"a {shown} b"


async def test_a_page_is_read_beside_the_event_loop(monkeypatch):
    # Two million brackets take seconds, in which all other episodes would stand still.
    threads = []

    def watched(source):
        threads.append(threading.current_thread())
        return read_page(source)

    monkeypatch.setattr(fetch_page, "read_page", watched)
    await read("/fox", Response("<p>60 m", media_type="text/html"))
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
