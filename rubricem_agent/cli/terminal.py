"""The output of a command: sentences, tables, one JSON document, warnings and progress bars."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial

import typer
from pydantic import BaseModel
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from rubricem_agent.progress import SECONDS, progress_lines

_WIDTH_WITHOUT_TERMINAL = 200
"""Columns where the output is no terminal: a file or a program needs rows that are not folded."""


class Terminal:
    """The output of one command. Results go to standard output; progress and warnings go to the error stream.

    Colour is used only on a terminal, and only where NO_COLOR is not set.
    """

    def __init__(self, *, as_json: bool = False, is_quiet: bool = False, line_seconds: float = SECONDS) -> None:
        """`line_seconds` lie between two lines of progress where no bar can be drawn."""
        self.as_json = as_json
        self.is_quiet = is_quiet
        self._line_seconds = line_seconds
        self._has_printed = False

    @property
    def is_silent(self) -> bool:
        """Whether text and tables for people are left out."""
        return self.as_json or self.is_quiet

    @property
    def colour(self) -> bool:
        """Whether text that is printed without rich may hold colour codes."""
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR")

    @property
    def console(self) -> Console:
        """Standard output for tables; it prints nothing where the command is silent."""
        self._has_printed = True
        has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
        return Console(quiet=self.is_silent, highlight=False, width=None if has_width else _WIDTH_WITHOUT_TERMINAL)

    def say(self, text: str = "") -> None:
        """Print a sentence for people."""
        if not self.is_silent:
            self._has_printed = True
            typer.echo(text)

    def show(self, *tables: RenderableType) -> None:
        """Print tables for people."""
        self.console.print(*tables, sep="\n")

    def warn(self, text: str) -> None:
        """Print a sentence on the error stream, with --json and --quiet too."""
        typer.echo(text, err=True)

    def close(self, document: object, summary: Mapping[str, object] | str = "", *, brief: str = "") -> None:
        """Print the result: the document with --json, `brief` with --quiet, else a summary, as a sentence or table."""
        if self.as_json:
            typer.echo(to_json(document))
        elif self.is_quiet or isinstance(summary, str):
            if text := brief if self.is_quiet else str(summary):
                typer.echo(text)
        else:
            rows = [(f"[bold]{escape(name)}[/bold]", inert(str(value))) for name, value in summary.items()]
            self.show(*([""] if self._has_printed else []), plain_table("", "", rows=rows, show_header=False))

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """Progress bars on the error stream, which vanish; where it is no terminal, lines every ten seconds."""
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        console = Console(stderr=True)
        is_disabled = self.is_silent or not console.is_terminal
        text = TextColumn("{task.description}")
        bars = Progress(text, *columns, console=console, transient=True, disable=is_disabled)
        has_lines = is_disabled and not self.is_silent
        lines = progress_lines(partial(_described, bars), seconds=self._line_seconds) if has_lines else nullcontext()
        with bars, lines:
            yield bars

    @contextmanager
    def bar(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """One progress bar; yields a function that takes the number of items just done."""
        with self.progress() as bars:
            task = bars.add_task(escape(what), total=total)
            yield lambda done: bars.advance(task, done)

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """A progress bar without a total, for work of unknown length."""
        with self.progress() as bars:
            bars.add_task(escape(what), total=None)
            yield


def _described(bars: Progress, elapsed: float) -> str:
    """The bars as a line: "answers 3 of 10; verdicts 2 of 10; 40 s"."""
    shown = ((Text.from_markup(task.description).plain, task) for task in bars.tasks)
    counts = (
        what if task.total is None else f"{what} {task.completed:.0f} of {task.total:.0f}" for what, task in shown
    )
    return "; ".join([*counts, f"{elapsed:.0f} s"])


def plain_table(*headings: str, rows: Iterable[Sequence[str]] = (), show_header: bool = True) -> Table:
    """A table without lines, as every command prints it. On a narrow terminal cells are folded; nothing is cut."""
    columns = (Column(heading, overflow="fold") for heading in headings)
    table = Table(*columns, box=None, pad_edge=False, show_header=show_header)
    for row in rows:
        table.add_row(*row)
    return table


def inert(text: str) -> str:
    """Untrusted text for a table: without markup and control characters."""
    return escape("".join(char if char.isprintable() else " " for char in text))


def to_json(document: object) -> str:
    """The document on one line; NaN and infinity are refused, since JSON has neither."""
    if isinstance(document, BaseModel):
        return document.model_dump_json()
    return json.dumps(document, ensure_ascii=False, allow_nan=False)
