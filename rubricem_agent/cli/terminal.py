"""What every command shares: its options --json and --quiet, its tables and progress bars, and its output files."""

import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, get_type_hints

import typer
from pydantic import BaseModel
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from rubricem_agent.cli.model_options import model_options, read_model
from rubricem_agent.wiring.command_option import NO_PROBE_HELP, PRICE_HELP
from rubricem_env.domain.errors import ConfigError, RubricEMError, UsageError
from rubricem_env.domain.inputs import validating
from rubricem_records.files.atomic_files import writing

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result alone: no tables, no progress.")]
ProbeOption = Annotated[bool, typer.Option("--no-probe", help=NO_PROBE_HELP)]
PriceOption = Annotated[list[str] | None, typer.Option(help=PRICE_HELP)]
INCOMPLETE = 3
"""The exit code of a run with something left to do."""
_WIDTH_WITHOUT_TERMINAL = 200
"""Columns where the output is no terminal: a file or a program needs rows that are not folded."""


class Terminal:
    """The output of one command. Results go to standard output; progress and warnings go to the error stream.

    Colour is used only on a terminal, and only where NO_COLOR is not set.
    """

    def __init__(self, *, as_json: bool = False, is_quiet: bool = False) -> None:
        self.as_json = as_json
        self.is_quiet = is_quiet
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
        """Progress bars on the error stream, where it is a terminal; they vanish at the end."""
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        console = Console(stderr=True)
        is_disabled = self.is_silent or not console.is_terminal
        text = TextColumn("{task.description}")
        with Progress(text, *columns, console=console, transient=True, disable=is_disabled) as bars:
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


def command(run: Callable[..., None]) -> Callable[..., None]:
    """Make a Typer command of a function.

    Its parameter of type Terminal becomes the options --json and --quiet. A parameter whose type is a dataclass becomes
    one option for each field; the fields' names and annotations are Typer's. A model's fields become options as
    `model_options` says.
    """
    hints = get_type_hints(run, include_extras=True)
    found = {name: _options_of(kind) for name, kind in hints.items() if isinstance(kind, type)}
    groups = {name: options for name, options in found.items() if options}
    parameters = []
    for name, parameter in inspect.signature(run).parameters.items():
        if name in groups:
            parameters += groups[name]
        elif hints[name] is not Terminal:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name]))
    for name, annotation in (("as_json", JsonOption), ("quiet", QuietOption)):
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation))

    def called(*, as_json: bool = False, quiet: bool = False, **given: object) -> None:
        for name, options in groups.items():
            with validating("the options are refused", error=ConfigError):
                own = {option.name: given.pop(option.name) for option in options}
                given[name] = read_model(hints[name], own) if issubclass(hints[name], BaseModel) else hints[name](**own)
        given |= {name: Terminal(as_json=as_json, is_quiet=quiet) for name, kind in hints.items() if kind is Terminal}
        run(**given)

    called.__name__, called.__doc__ = run.__name__, run.__doc__
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return called


def run_command(run: Callable[..., None]) -> None:
    """Run one command as a program of its own, as `python -m`."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(run)
    run_app(app, name=run.__name__)


def run_app(app: typer.Typer, *, name: str) -> None:
    """Run commands; an error is one sentence on stderr, with exit code 2 for a UsageError and 1 for others."""
    try:
        app()
    except RubricEMError as problem:
        sys.stderr.write(f"{name}: {problem}\n")
        sys.exit(2 if isinstance(problem, UsageError) else 1)


def _options_of(kind: type) -> list[inspect.Parameter]:
    """One option for each field; none where it is neither a dataclass nor a model."""
    if issubclass(kind, BaseModel):
        return model_options(kind)
    if not is_dataclass(kind):
        return []
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=hints[field.name],
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
        )
        for field in fields(kind)
    ]


def plain_table(*headings: str, rows: Iterable[Sequence[str]] = (), show_header: bool = True) -> Table:
    """A table without lines, as every command prints it."""
    table = Table(*headings, box=None, pad_edge=False, show_header=show_header)
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


def write_out(file: Path, text: str, *, option: str, makes_folder: bool = False) -> None:
    """Write a file; raises a ConfigError that names the option where it cannot be written."""
    with writing(file, f"Choose another file with {option}."):
        if makes_folder:
            file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def open_out(folder: Path) -> None:
    """Make the folder of --out; raises ConfigError where it cannot be made or written to."""
    with writing(folder, "Choose another folder with --out."):
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()
