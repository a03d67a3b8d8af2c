"""Makes a command of a function, and runs commands; defines the options and the exit code that commands share."""

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer
from pydantic import BaseModel

from rubricem_agent.cli.model_options import model_options, read_model
from rubricem_agent.cli.terminal import Terminal
from rubricem_agent.wiring.command_option import NO_PROBE_HELP, PRICE_HELP
from rubricem_env.domain.errors import ConfigError, RubricEMError, UsageError
from rubricem_env.domain.inputs import validating
from rubricem_env.llm.limits.outages import Outages

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result alone: no tables, no progress.")]
ProbeOption = Annotated[bool, typer.Option("--no-probe", help=NO_PROBE_HELP)]
ScaffoldOption = Annotated[
    str, typer.Option("--scaffold", metavar="NAME|FOLDER", help="The stages of the task, or the folder of your own.")
]
AttemptsScaffoldOption = Annotated[
    str,
    typer.Option(
        "--scaffold",
        metavar="NAME|FOLDER",
        help="The stages of the attempts; those of the package are known by their record.",
    ),
]
PriceOption = Annotated[list[str] | None, typer.Option(help=PRICE_HELP)]
INCOMPLETE = 3
"""The exit code of a run with something left to do."""


def command(run: Callable[..., None]) -> Callable[..., None]:
    """Make a Typer command of a function.

    Its parameter of type Terminal becomes the options --json and --quiet. A parameter whose type is a dataclass becomes
    one option for each field; the fields' names and annotations are Typer's. A model's fields become options as
    `model_options` says.
    """
    hints = get_type_hints(run, include_extras=True)
    options_by_name: dict[str, list[inspect.Parameter]] = {}
    """The options that a parameter becomes, for each that has its own."""
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(run).parameters.items():
        kind = hints[name]
        if kind is Terminal:
            continue
        if options := _options_of(kind):
            options_by_name[name] = options
            parameters += options
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=kind))
    for name, annotation in (("as_json", JsonOption), ("quiet", QuietOption)):
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation))

    def called(*, as_json: bool = False, quiet: bool = False, **given: object) -> None:
        for name, options in options_by_name.items():
            with validating("the options are refused", error=ConfigError):
                given[name] = _read(hints[name], {option.name: given.pop(option.name) for option in options})
        terminal = Terminal(as_json=as_json, is_quiet=quiet)
        given |= {name: terminal for name, kind in hints.items() if kind is Terminal}
        try:
            with Outages(terminal.warn).noted():
                run(**given)
        except KeyboardInterrupt:  # of a command that has no more to say of it
            terminal.warn("interrupted.")
            raise typer.Exit(130) from None

    called.__name__ = run.__name__
    called.__doc__ = run.__doc__
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


def _options_of(kind: Any) -> list[inspect.Parameter]:
    """One option for each field; none where the type is neither a dataclass nor a model."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
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


def _read(kind: Any, given: Mapping[str, object]) -> object:
    """The dataclass or the model, given the values of its options."""
    return read_model(kind, given) if issubclass(kind, BaseModel) else kind(**given)
