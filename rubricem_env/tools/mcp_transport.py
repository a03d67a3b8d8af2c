"""Limits what an MCP server may send, before anything reads it whole: a program's lines and replies over HTTP."""

import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from importlib.metadata import version
from typing import Any

import anyio
import mcp.types
from anyio.abc import Process
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from rubricem_env.tools.failures import ToolFailure

IS_MCP_1 = version("mcp").startswith("1.")
HTTP: Any = import_module("httpx" if IS_MCP_1 else "httpx2")
MAX_MESSAGE = 8_000_000
"""Bytes of one message of a server. A hundred pages of a tool's text fit into it."""
_END_SECONDS = 1.0
_PARSE: Any = (
    mcp.types.JSONRPCMessage.model_validate_json  # type: ignore[attr-defined, unused-ignore]
    if IS_MCP_1
    else mcp.types.jsonrpc_message_adapter.validate_json
)


def too_large() -> ToolFailure:
    return ToolFailure(f"the server sent a message of more than {MAX_MESSAGE:,} bytes; it is not read.")


class _LimitedBody(HTTP.AsyncByteStream):  # type: ignore[misc]
    """The body of a reply. Fails once a message is too long: the whole body, or an event of a stream of events."""

    def __init__(self, body: Any, *, has_events: bool) -> None:
        self._body = body
        self._has_events = has_events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._body:
            end = max(chunk.rfind(b"\n\n"), chunk.rfind(b"\r\n\r\n"), chunk.rfind(b"\r\r")) if self._has_events else -1
            size = len(chunk) - end if end >= 0 else size + len(chunk)
            if size > MAX_MESSAGE:
                raise too_large()
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()


async def limit_reply(response: Any) -> None:
    """A hook of the HTTP client: the reply is read up to the limit, and not at all where it would unfold."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise ToolFailure("the server sent a compressed reply, which was not asked for; it is not read.")
    kind = response.headers.get("content-type", "")
    response.stream = _LimitedBody(response.stream, has_events=kind.lower().startswith("text/event-stream"))


@asynccontextmanager
async def open_program(
    command: str, arguments: Sequence[str], environment: Mapping[str, str]
) -> AsyncIterator[tuple[Any, Any]]:
    """A child process as a transport of mcp: its messages in, ours out. It gets `environment` and no keys of ours."""
    process = await anyio.open_process(
        [command, *arguments],
        stderr=None,
        env={**get_default_environment(), **environment},
        start_new_session=True,
    )
    received, incoming = anyio.create_memory_object_stream[Any](0)
    outgoing, sent = anyio.create_memory_object_stream[Any](0)
    try:
        async with received, incoming, outgoing, sent, anyio.create_task_group() as tasks:
            tasks.start_soon(_receive, process, received)
            tasks.start_soon(_send, process, sent, received)
            yield incoming, outgoing
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)


async def _receive(process: Process, received: Any) -> None:
    async with received:
        async for line in _lines(process):
            try:
                message: Any = SessionMessage(_PARSE(line))
            except ValueError as cause:
                message = cause
            with suppress(anyio.BrokenResourceError):
                await received.send(message)


async def _lines(process: Process) -> AsyncIterator[bytes]:
    assert process.stdout is not None
    begun = bytearray()
    async for chunk in process.stdout:
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            yield bytes(begun + line)
            begun.clear()
        begun += rest
        if len(begun) > MAX_MESSAGE:
            raise too_large()


async def _send(process: Process, sent: Any, received: Any) -> None:
    assert process.stdin is not None
    try:
        async for each in sent:
            await process.stdin.send(each.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
    except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        # The program has closed its input: what is asked now would wait for ever.
        await received.aclose()


async def _end(process: Process) -> None:
    """Close the program's input, then end it and what it started."""
    assert process.stdin is not None
    with suppress(OSError, anyio.BrokenResourceError):
        await process.stdin.aclose()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
        with anyio.move_on_after(_END_SECONDS):
            await process.wait()
            break
    await process.aclose()
