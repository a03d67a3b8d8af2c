"""Writes a line of progress every ten seconds where no bar is drawn: in a log, in a pipe, beside a trainer."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

SECONDS = 10.0
"""Between two lines."""
MARK = "... "
"""Begins every line of progress, so that a program that reads the error stream can tell it from an error."""


@contextmanager
def progress_lines(describe: Callable[[float], str], *, seconds: float = SECONDS) -> Iterator[None]:
    """While the block runs, write what `describe` says of the seconds so far to the error stream.

    Nothing is written where it says nothing, and nothing within the first `seconds`. `describe` is called in a thread
    of its own, so that a block that never yields is described too.
    """
    is_over = Event()
    began = time.monotonic()

    def write() -> None:
        while not is_over.wait(seconds):
            if said := describe(time.monotonic() - began):
                sys.stderr.write(f"{MARK}{said}\n")
                sys.stderr.flush()

    thread = Thread(target=write, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextmanager
def counted(what: str, total: int) -> Iterator[Callable[[object], None]]:
    """Lines "WHAT: 3 of 10"; yields a function that is called with each one that is done."""
    done: list[object] = []
    with progress_lines(lambda elapsed: f"{what}: {len(done)} of {total}; {elapsed:.0f} s"):
        yield done.append
