"""The commands that installed packages bring to `rubricem`, by entry points of the group `rubricem.commands`."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command as make_command

from rubricem_env.domain.errors import BoundaryError, boundary

GROUP = "rubricem.commands"
"""In a package's pyproject.toml: [project.entry-points."rubricem.commands"], with lines NAME = "MODULE:OBJECT".

The object is a `typer.Typer`, or a function whose parameters Typer reads. Its docstring is the help text.
"""
_OF_COMMANDS = ("--json", "--quiet", "-q")
"""Options that every command has, and `rubricem` itself has not."""
_UsageError: Any = typer.BadParameter.__mro__[1]
"""Typer's error for a command that is written wrongly, which has no public name."""
_FIRST = (
    *("demo", "init", "ask", "train", "train-verl", "watch", "view", "report", "judge", "calibrate", "probe"),
    *("credit", "inspect", "parity", "push", "doctor", "eval", "tools", "corpus", "bank", "data", "export"),
)
"""The order of the commands in the help text; others follow by name."""


class CommandGroup(TyperGroup):
    """The commands registered here, and those of installed packages, each loaded when it is called or listed.

    A name that is taken stays with its owner: first the commands registered here, then this project's, then others'.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _ways_out(tuple(args)):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with _ways_out():
            return super().invoke(ctx)

    @cached_property
    def entry_points(self) -> dict[str, EntryPoint]:
        """The entry points of the group by the name of their command."""
        owned_last = sorted(entry_points(group=GROUP), key=lambda entry_point: _package_of(entry_point) == "rubricem")
        return {entry_point.name: entry_point for entry_point in owned_last}

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands; one that cannot be loaded is left out, with a sentence on the error stream."""
        names = {*self.commands, *self.entry_points}
        last = len(_FIRST)
        ordered = sorted(names, key=lambda name: (_FIRST.index(name) if name in _FIRST else last, name))
        return [name for name in ordered if self._can_load(name)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name; None where there is none.

        Raises:
            BoundaryError: its package cannot load it.
        """
        if cmd_name not in self.commands and cmd_name in self.entry_points:
            self.commands[cmd_name] = load_command(self.entry_points[cmd_name])
        return self.commands.get(cmd_name)

    def _can_load(self, name: str) -> bool:
        try:
            self.get_command(None, name)
        except BoundaryError as failure:
            sys.stderr.write(f"rubricem: {failure}\n")
            return False
        return True


@contextmanager
def _ways_out(args: Sequence[str] = ()) -> Iterator[None]:
    """Add to a refusal of Typer's how the command is written; `args` are those before the name of a command."""
    try:
        yield
    except _UsageError as mistake:
        given = next((arg for arg in args if arg.startswith("-")), "")
        if given in _OF_COMMANDS:
            mistake.message += f". It stands behind the command, as in `rubricem doctor {given}`"
        elif "unexpected extra argument" in mistake.message:
            mistake.message += ". Leave it out, or put a text of several words in quotation marks"
        raise


def load_command(entry_point: EntryPoint) -> Any:
    """The command that an entry point names.

    Raises:
        BoundaryError: it cannot be imported, or is none. The message names the package.
    """
    name = entry_point.name
    package = _package_of(entry_point)
    with boundary(BoundaryError, f"load the command {name!r} of the package {package}"):
        target: typer.Typer | Callable[..., None] = entry_point.load()
        app = target
        if not isinstance(app, typer.Typer):
            app = typer.Typer(add_completion=False)
            app.command()(target)
        command: Any = make_command(app)
    command.name = name
    return command


def _package_of(entry_point: EntryPoint) -> str:
    return entry_point.dist.name if entry_point.dist else "without a name"
