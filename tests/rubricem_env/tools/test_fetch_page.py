"""The page fetcher: real pages on loopback, which is let through by name of its address alone."""

import gzip
import threading
import time

import httpx2
import pytest
from hypothesis import given, strategies as st
from starlette.responses import RedirectResponse, Response

from rubricem_env.domain.trajectory import ToolCall, ToolStatus
from rubricem_env.testing.loopback import free_port, serve_loopback
from rubricem_env.testing.servers import pages_app
from rubricem_env.tools import fetch_page
from rubricem_env.tools.fetch_page import MAX_BYTES, PageFetcher, is_public, pin, read_page
from rubricem_env.tools.guard import ToolFailure
from rubricem_env.tools.http import read_capped

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


async def fetch(url, fetcher=None):
    fetcher = fetcher or PageFetcher(resolver=resolver(["8.8.8.8"]))
    return (await fetcher.answer(ToolCall(name="fetch_page", query=url)))[0]


async def read(app, path="/", *answers):
    """A page of a site on loopback, which is allowed by address and port alone."""
    with serve_loopback(pages_app({path: lambda: app}) if isinstance(app, Response) else app) as url:
        port = int(url.rsplit(":", 1)[1])
        site = resolver(*(answers or (["127.0.0.1"],)))
        fetcher = PageFetcher(ports=frozenset({port}), exceptions=frozenset({"127.0.0.1"}), resolver=site)
        return await fetch(f"http://pages.example:{port}{path}", fetcher)


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
        await fetch(f"http://{host}/", PageFetcher())


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
        (Response(b"x", media_type="application/pdf"), "only text and HTML are read"),
        (Response(b"x", media_type="video/mp4"), "only text and HTML are read"),
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
    fetcher = PageFetcher(ports=frozenset({port}), exceptions=frozenset({"127.0.0.1"}))
    with pytest.raises(ToolFailure, match="cannot be reached"):
        await fetch(f"http://127.0.0.1:{port}/", fetcher)


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
    await read(Response("<p>60 m", media_type="text/html"))
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
