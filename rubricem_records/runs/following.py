"""Follows a run's log while a trainer writes it."""

from collections.abc import Callable, Iterator
from pathlib import Path

from rubricem_records.runs.log_lines import LogLine
from rubricem_records.runs.run_log import METRICS_FILE, complete_lines, read_line


def follow_log(folder: Path) -> Callable[[], Iterator[LogLine]]:
    """A reader of a log that is being written: each call returns the lines since the call before, in their order.

    Lines that are in the log now are left out. A resumed run writes some steps again: those count as new. A caller that
    is interrupted at a line gets it again.
    """
    path = folder / METRICS_FILE

    def present() -> list[str]:
        try:
            return complete_lines(path)
        except (FileNotFoundError, NotADirectoryError):
            return []

    seen = set(present())

    def new_lines() -> Iterator[LogLine]:
        for line in present():
            if line not in seen:
                yield read_line(line, str(path))
                seen.add(line)

    return new_lines
