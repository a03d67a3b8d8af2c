"""What a command says: one JSON document for programs, the result alone for scripts, tables and bars for people.

A command's options as one value: a command with many options stays a function of one argument.

The file that an option names, written in one go.

What --out names, a folder or a file in one, tried before anything is spent on what goes there.
"""

import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, TypeVar, get_type_hints

import typer
from pydantic import BaseModel
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from rubricem_env.domain.errors import ConfigError

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result alone: no tables, no progress.")]

_UNBROKEN = 200
"""Columns where nobody watches: a row that is cut or folded is of no use to a file or another program."""


class Terminal:
    """One command's voice. Results go to standard output; progress and warnings to the error stream.

    Colour comes only where a terminal is, and where NO_COLOR is not set.
    """

    def __init__(self, *, as_json: bool = False, is_quiet: bool = False) -> None:
        self.as_json = as_json
        self.is_quiet = is_quiet
        self._has_spoken = False

    @property
    def is_silent(self) -> bool:
        """Whether words and tables for people are left out."""
        return self.as_json or self.is_quiet

    @property
    def colour(self) -> bool:
        """Whether what is printed without rich may hold colour codes."""
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR")

    @property
    def console(self) -> Console:
        """Standard output for tables; it swallows everything where the command is silent."""
        self._has_spoken = True
        is_watched = sys.stdout.isatty() or "COLUMNS" in os.environ
        return Console(quiet=self.is_silent, highlight=False, width=None if is_watched else _UNBROKEN)

    def say(self, text: str = "") -> None:
        """A sentence for people."""
        if not self.is_silent:
            self._has_spoken = True
            typer.echo(text)

    def show(self, *tables: RenderableType) -> None:
        """Tables for people."""
        self.console.print(*tables, sep="\n")

    def warn(self, text: str) -> None:
        """A sentence that is said in every form, on the error stream."""
        typer.echo(text, err=True)

    def close(self, document: object, summary: Mapping[str, object] | str = "", *, brief: str = "") -> None:
        """The last word: the document under --json, `brief` under --quiet, else the summary as a sentence or a table."""
        if self.as_json:
            typer.echo(to_json(document))
        elif self.is_quiet:
            if brief:
                typer.echo(brief)
        elif isinstance(summary, str):
            if summary:
                typer.echo(summary)
        else:
            table = plain_table("", "", show_header=False)
            for name, value in summary.items():
                table.add_row(f"[bold]{escape(name)}[/bold]", inert(str(value)))
            self.show(*([""] if self._has_spoken else []), table)

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """Bars on the error stream while a terminal is there to show them; they vanish at the end."""
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        console = Console(stderr=True)
        with Progress(
            *columns, console=console, transient=True, disable=self.is_silent or not console.is_terminal
        ) as bars:
            yield bars

    @contextmanager
    def bar(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """One bar; what it gives is called with the number of things that have just been done."""
        with self.progress() as bars:
            task = bars.add_task(escape(what), total=total)
            yield lambda done: bars.advance(task, done)

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """A sign of life and the seconds, for work whose length nobody knows."""
        with self.progress() as bars:
            bars.add_task(escape(what), total=None)
            yield


def plain_table(*headings: str, show_header: bool = True) -> Table:
    """A table without lines, as every command prints it."""
    return Table(*headings, box=None, pad_edge=False, show_header=show_header)


def inert(text: str) -> str:
    """Text that is not ours, for a table: without markup and control characters."""
    return escape("".join(char if char.isprintable() else " " for char in text))


def to_json(document: object) -> str:
    """A document on one line; NaN and infinity are refused, since JSON has neither."""
    if isinstance(document, BaseModel):
        return document.model_dump_json()
    return json.dumps(document, ensure_ascii=False, allow_nan=False)


Options = TypeVar("Options")


def as_command(kind: type[Options]) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Makes of a function of options what Typer wants: one parameter for each field of the dataclass `kind`.

    Field names are option names; the annotations are Typer's.
    """

    def of_options(run: Callable[[Options], None]) -> Callable[..., None]:
        def command(**given: object) -> None:
            run(kind(**given))

        command.__name__, command.__doc__ = run.__name__, run.__doc__
        command.__annotations__ = get_type_hints(kind, include_extras=True)
        command.__signature__ = _signature(kind)  # type: ignore[attr-defined]
        return command

    return of_options


def _signature(kind: type) -> inspect.Signature:
    hints = get_type_hints(kind, include_extras=True)
    return inspect.Signature(
        [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=hints[field.name],
                default=inspect.Parameter.empty if field.default is MISSING else field.default,
            )
            for field in fields(kind)
        ]
    )


def write_out(file: Path, text: str, *, option: str) -> None:
    """Write the text.

    Raises:
        ConfigError: the file cannot be written; `option` is what named it.
    """
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as cause:
        raise ConfigError(f"cannot write {file}: {cause.strerror}. Choose another file with {option}.") from cause


def open_out(folder: Path) -> None:
    """Make the folder.

    Raises:
        ConfigError: it cannot be made, or not be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as cause:
        raise ConfigError(f"cannot write to {folder}: {cause.strerror}. Choose another folder with --out.") from cause


def open_out_file(path: Path) -> None:
    """Make the folder that the file goes into.

    Raises:
        ConfigError: the path is a folder, or its folder cannot be made or written to.
    """
    if path.is_dir():
        raise ConfigError(f"--out is {path}, a folder, and a file goes there; write {path / 'trajectory.json'}.")
    open_out(path.parent)
