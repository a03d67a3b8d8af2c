"""A command's options as one value: a command with many options stays a function of one argument."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import TypeVar, get_type_hints

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
