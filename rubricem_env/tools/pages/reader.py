"""Reads HTML pages and PDF files in processes with limits of time and memory.

A page is foreign bytes: one that breaks a parser ends a reader process, and nothing else. The processes run the module
page_text, with no key in their environment.
"""

import asyncio
import json
import struct
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

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
        self._seconds = seconds
        self._threads = ThreadPoolExecutor(processes, thread_name_prefix="page-reader")
        self._idle: list[subprocess.Popen[bytes]] = []

    async def read(self, body: bytes, format: Format, charset: str = "utf-8") -> tuple[str, str]:
        """The title and the text; raises Unreadable where the parser fails or takes too long."""
        work = asyncio.get_running_loop().run_in_executor(self._threads, self.read_now, body, format, charset)
        return await work

    def read_now(self, body: bytes, format: Format, charset: str = "utf-8") -> tuple[str, str]:
        """The same, for callers without an event loop."""
        # Taken and given back in one step each: a list is safe among threads.
        process = self._idle.pop() if self._idle else _start()
        clock = threading.Timer(self._seconds, process.kill)
        clock.start()
        reply = b""
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(REQUEST.pack(format.encode(), charset.encode()[:16], len(body)) + body)
            process.stdin.flush()
            reply = process.stdout.readline()
        except BrokenPipeError:
            pass
        finally:
            clock.cancel()
            if reply.endswith(b"\n"):
                self._idle.append(process)
            else:
                _stop(process)
        if not reply.endswith(b"\n"):
            raise Unreadable(
                f"its {format.upper()} cannot be parsed within {self._seconds:g} s and the memory of one process"
            )
        answer = json.loads(reply)
        if isinstance(answer, dict):
            raise Unreadable(answer["problem"])
        title, text = answer
        return title, text

    def close(self) -> None:
        """End the processes."""
        self._threads.shutdown()
        while self._idle:
            _stop(self._idle.pop())


def _start() -> subprocess.Popen[bytes]:
    # -P: a module that lies in the current folder is not imported. The environment holds no key.
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "rubricem_env.tools.pages.text"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
    )


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()
