"""Reads HTML pages and PDF files in processes with limits of time and memory.

A page is foreign bytes: one that breaks a parser ends a reader process, and nothing else. The processes run the module
`text`.
"""

import asyncio
import json
import struct
from typing import Literal

from rubricem_env.tools.limited_processes import LimitedProcesses

MAX_TEXT = 400_000
"""Characters of a page's text that are kept."""
Format = Literal["html", "pdf"]
REQUEST = struct.Struct(">4s16sI")
"""A request has a format, a charset and a number of bytes; the bytes follow.

The reply is a line of JSON: the title and the text.
"""


class Unreadable(Exception):
    """The parser failed, or took too long."""


class PageReader:
    """Reads pages in processes of its own, which start at the first page and are replaced when one fails."""

    def __init__(self, *, processes: int = 2, seconds: float = 10.0) -> None:
        self._processes = LimitedProcesses("rubricem_env.tools.pages.text", processes=processes, seconds=seconds)

    async def read(self, body: bytes, format: Format, charset: str = "utf-8") -> tuple[str, str]:
        """The title and the text; raises Unreadable where the parser fails or takes too long."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._processes.threads, self.read_now, body, format, charset)

    def read_now(self, body: bytes, format: Format, charset: str = "utf-8") -> tuple[str, str]:
        """The same, for callers without an event loop."""
        head = REQUEST.pack(format.encode(), charset.encode()[:16], len(body))
        reply = self._processes.ask(head + body)
        if not reply:
            raise Unreadable(
                f"its {format.upper()} cannot be parsed within {self._processes.seconds:g} s and the memory of one "
                "process"
            )
        answer = json.loads(reply)
        if isinstance(answer, dict):
            raise Unreadable(answer["problem"])
        title, text = answer
        return title, text

    def close(self) -> None:
        """End the processes."""
        self._processes.close()
