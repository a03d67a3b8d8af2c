"""Writes docs/reference/commands.md from the command line itself; `make docs-reference` calls it."""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from typer.main import get_command  # noqa: E402

from rubricem_agent.cli.main import app  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "commands.md"
INTRODUCTION = """# Commands

<!-- Made by docs/make/commands.py from the command line; `make docs-reference` regenerates it. -->

Every command has three forms of output.

- For people: tables and sentences, with progress bars on the error stream where it is a terminal.
- For scripts, with `--quiet` (`-q`): the result alone, such as a path, a number or a line for each row; the error
  stream has failures only.
- For programs, with `--json`: one JSON document on one line of standard output. The servers (`tools serve`, `view`)
  print it when they listen. Errors are sentences on the error stream.

Colour is used only on a terminal, and only where `NO_COLOR` is not set. Elsewhere rows of tables are not folded, up to
200 columns; `COLUMNS` sets another width.

| exit code | means |
|---|---|
| 0 | done |
| 1 | a model, a tool or a judge failed; or a check found a difference |
| 2 | the command was wrong; one sentence on the error stream says what, where and the way out |
| 3 | `eval run`: something is left to do; the same command resumes |
| 130 | interrupted; the same command resumes where it can |
"""


def render() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *(section(words, command) for words, command in leaves(get_command(app)))])


def leaves(command: Any, words: tuple[str, ...] = ("rubricem",)) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every leaf command, with the words that call it."""
    if not hasattr(command, "commands"):
        yield words, command
        return
    for name in command.list_commands(None):
        yield from leaves(command.get_command(None, name), (*words, name))


def section(words: tuple[str, ...], command: Any) -> str:
    """One command: its help, usage and parameters."""
    arguments = [option for option in command.params if option.param_type_name == "argument"]
    options = [option for option in command.params if option.param_type_name == "option" and option.name != "help"]
    usage = " ".join([*words, *(metavar(argument) for argument in arguments), *(["[OPTIONS]"] if options else [])])
    rows = [f"| `{metavar(argument)}` | {help_of(argument)} | {default(argument)} |" for argument in arguments]
    rows += [
        f"| {flags(option)} | {help_of(option)} | {default(option)} |"
        for option in options
        if option.name not in SHARED
    ]
    table = ["| | | default |", "|---|---|---|", *rows, ""] if rows else []
    return "\n".join(
        [f"## {' '.join(words[1:])}", "", inspect.cleandoc(command.help or ""), "", f"    {usage}", "", *table]
    )


SHARED = {"as_json", "quiet"}
"""Every command has them, which a test checks."""


def metavar(argument: Any) -> str:
    """An argument as the usage line shows it."""
    name = argument.metavar or argument.name.upper()
    shown = name if argument.required or name.startswith("[") else f"[{name}]"
    return shown + ("..." if argument.nargs == -1 and not name.endswith("...") else "")


def flags(option: Any) -> str:
    """An option with its choices."""
    names = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
    if option.is_flag:
        return names
    choices = option.type_descriptor.choices if option.type_descriptor.is_choice else ()
    return " ".join([names, ", ".join(f"`{getattr(choice, 'value', choice)}`" for choice in choices)]).rstrip()


def help_of(option: Any) -> str:
    """Its help text, and the variable that may replace it."""
    text = " ".join((option.help or "").split()).replace("|", "\\|")
    return f"{text} Or `{option.envvar}`." if getattr(option, "envvar", None) else text


def default(option: Any) -> str:
    """The value without the option."""
    value = option.default
    if option.required:
        return "**required**"
    is_unset = value is None or callable(value) or type(value).__name__ == "Sentinel"
    if is_unset or value in ("", ()) or getattr(option, "is_flag", False):
        return ""
    return f"`{getattr(value, 'value', value)}`"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
