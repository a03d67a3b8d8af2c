"""A reply's body up to a cap that counts bytes after decompression, so that a small bomb cannot become a large page."""

import zlib
from typing import NamedTuple

import httpx2

from rubricem_env.tools.failure import ToolFailure

ACCEPT_ENCODING = "gzip, deflate"
_AUTO_DETECT = zlib.MAX_WBITS | 32
_PLAIN = frozenset({"", "identity"})
_ZLIB = frozenset({"gzip", "x-gzip", "deflate"})


class CappedBody(NamedTuple):
    """What was read."""

    content: bytes
    is_cut: bool
    """There was more."""


async def read_capped(response: httpx2.Response, cap: int) -> CappedBody:
    """Read a streamed response and stop at `cap` bytes; never holds much more than that.

    Raises:
        ToolFailure: it is compressed in a way that was not asked for, or broken.
    """
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in _PLAIN | _ZLIB:
        raise ToolFailure(f"the reply is compressed as {encoding[:20]!r}, which is not read.")
    inflater = zlib.decompressobj(_AUTO_DETECT) if encoding in _ZLIB else None
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk if inflater is None else _inflate(inflater, chunk, cap + 1 - len(body))
        if len(body) > cap:
            return CappedBody(bytes(body[:cap]), is_cut=True)
        if inflater is not None and inflater.eof:
            # The inflater keeps whatever comes after its end, without bound.
            break
    return CappedBody(bytes(body), is_cut=False)


def _inflate(inflater: "zlib._Decompress", chunk: bytes, room: int) -> bytes:
    try:
        return inflater.decompress(inflater.unconsumed_tail + chunk, max(1, room))
    except zlib.error as problem:
        raise ToolFailure("the reply is compressed and broken; it cannot be read.", passes=True) from problem
