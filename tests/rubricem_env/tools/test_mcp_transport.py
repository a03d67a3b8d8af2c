"""What a server may send: bytes of one message up to the limit, however they are cut, and none that would unfold."""

import sys
from types import SimpleNamespace

import pytest

from rubricem_env.tools import mcp_transport
from rubricem_env.tools.failures import ToolFailure
from rubricem_env.tools.mcp_transport import limit_reply, open_program


@pytest.fixture(autouse=True)
def limit(monkeypatch):
    monkeypatch.setattr(mcp_transport, "MAX_MESSAGE", 10)


class Body:
    def __init__(self, chunks):
        self.chunks, self.is_closed = chunks, False

    async def __aiter__(self):
        for chunk in self.chunks:
            yield chunk

    async def aclose(self):
        self.is_closed = True


async def read(chunks, kind):
    response = SimpleNamespace(headers={"content-type": kind}, stream=Body(chunks))
    await limit_reply(response)
    return [chunk async for chunk in response.stream]


EVENTS, JSON = "Text/Event-Stream; charset=utf-8", "application/json"


@pytest.mark.parametrize(
    ("kind", "chunks"),
    [
        (JSON, [b"a" * 10]),
        (JSON, [b"a" * 6, b"a" * 4]),
        ("", [b"a" * 10]),
        (EVENTS, [b"a" * 8, b"a\n\n", b"a" * 7, b"\n\n", b"a" * 8]),
        (EVENTS, [b"a" * 30 + b"\n\n" + b"a" * 8]),
        (EVENTS, [b"a" * 9, b"\r\n\r\n", b"a" * 6]),
        (EVENTS, [b"a" * 9, b"\r\r", b"a" * 8]),
    ],
)
async def test_messages_up_to_the_limit_are_read_as_they_come(kind, chunks):
    assert await read(chunks, kind) == chunks


@pytest.mark.parametrize(
    ("kind", "chunks"),
    [
        (JSON, [b"a" * 11]),
        (JSON, [b"a" * 6, b"a" * 5]),
        (JSON, [b"a" * 6 + b"\n\n", b"a" * 5]),
        (EVENTS, [b"a" * 6, b"a" * 5]),
        (EVENTS, [b"a\n\n" + b"a" * 9]),
    ],
)
async def test_a_longer_message_is_refused(kind, chunks):
    with pytest.raises(ToolFailure, match="more than 10 bytes"):
        await read(chunks, kind)


async def test_a_reply_that_would_unfold_is_not_read_and_a_plain_one_may_say_so():
    headers = {"content-encoding": "br"}
    with pytest.raises(ToolFailure, match="a compressed reply"):
        await limit_reply(SimpleNamespace(headers=headers, stream=Body([])))
    await limit_reply(SimpleNamespace(headers={"content-encoding": "identity"}, stream=Body([])))


async def test_closing_a_reply_closes_its_connection():
    body = Body([])
    response = SimpleNamespace(headers={}, stream=body)
    await limit_reply(response)
    await response.stream.aclose()
    assert body.is_closed


PROGRAM = """
import os, sys
print("no message", flush=True)
for part in ('{"jsonrpc":"2.0",', '"id":1,"result":{}}\\n{"jsonrpc":"2.0","id":2,"result":{}}\\n'):
    sys.stdout.write(part)
    sys.stdout.flush()
sys.stdin.read()
print('{"jsonrpc":"2.0","id":3,"result":{}}', flush=True)
"""


async def test_the_lines_of_a_program_are_messages_and_other_lines_are_errors(monkeypatch):
    monkeypatch.setattr(mcp_transport, "MAX_MESSAGE", 100)
    async with open_program(sys.executable, ("-c", PROGRAM), {}) as (incoming, _):
        first, *messages = [await incoming.receive() for _ in range(3)]
    assert isinstance(first, ValueError)
    assert [getattr(each.message, "root", each.message).id for each in messages] == [1, 2]
