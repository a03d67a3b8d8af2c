"""Lines that are compressed one by one: a file of them grows by appending, and each is read by its position alone.

Each line is a gzip member of its own, so `zcat` and other readers of gzip see an ordinary file of lines.
"""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

from rubricem_env.domain.errors import FileFormatError

PACKED = ".jsonl.gz"
LARGEST_LINE = 2**26
"""The most bytes of a line that are unpacked; a file of a few kilobytes may claim any number of them."""


def pack_line(line: bytes) -> bytes:
    """A line with its line break, compressed; equal lines give equal bytes."""
    return gzip.compress(line + b"\n", compresslevel=6, mtime=0)


def unpack_line(packed: bytes) -> bytes:
    """The line of `pack_line`, without its line break; nothing where the bytes are not one whole line."""
    member = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        line = member.decompress(packed, LARGEST_LINE)
    except zlib.error:
        return b""
    return line.removesuffix(b"\n") if member.eof else b""


def read_packed(path: Path) -> Iterator[bytes]:
    """The whole lines of a file, each with its line break; a last one that is still being written is left out.

    A file that was unpacked by hand is read too.

    Raises:
        FileFormatError: something in the file is not compressed, or a line is too long.
    """
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
        try:
            while line := lines.readline(LARGEST_LINE):
                if len(line) == LARGEST_LINE:
                    raise FileFormatError(f"{path} has a line of more than {LARGEST_LINE:,} bytes.")
                if line.endswith(b"\n"):
                    yield line
        except EOFError:
            return
        except (zlib.error, gzip.BadGzipFile) as cause:
            raise FileFormatError(f"{path} is damaged: {cause}. Restore the file, or a copy of it.") from cause
