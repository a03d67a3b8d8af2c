"""The options of a command that are the fields of a model."""

import inspect
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rubricem_agent.wiring.command_option import CommandOption

ModelT = TypeVar("ModelT", bound=BaseModel)


def model_options(model: type[BaseModel]) -> list[inspect.Parameter]:
    """The parameters that Typer reads: one for each described field, and one for each `CommandOption` of a field."""
    parameters: list[inspect.Parameter] = []
    for name, field in model.model_fields.items():
        parameters += [_written_parameter(option) for option in _written_options(field)]
        if field.description:
            parameters.append(_field_parameter(name, field))
    return parameters


def read_model(model: type[ModelT], given: Mapping[str, Any]) -> ModelT:
    """The model, given the values of its options by the parameters' names.

    Raises:
        ConfigError: an option's text has not the form of its field.
        ValidationError: the model refuses a value.
    """
    values: dict[str, object] = {}
    for name, field in model.model_fields.items():
        if field.description:
            values[name] = given[name]
        parts: dict[str, object] = {}
        for option in _written_options(field):
            value = option.parse(given[option.name])
            if option.part:
                parts[option.part] = value
            else:
                values[name] = value
        if parts and field.annotation is not None:
            values[name] = field.annotation(**parts)
    return model(**values)


def _written_options(field: FieldInfo) -> list[CommandOption]:
    return [mark for mark in field.metadata if isinstance(mark, CommandOption)]


def _field_parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    """A field as Typer reads one: an argument where it is required, a flag where it is true or false."""
    if field.is_required():
        argument = typer.Argument(help=field.description)
        return _parameter(name, Annotated[field.annotation, argument], inspect.Parameter.empty)
    flag = (f"--{name.replace('_', '-')}",) if field.annotation is bool else ()
    option = typer.Option(*flag, help=field.description)
    return _parameter(name, Annotated[field.annotation, option], field.get_default())


def _written_parameter(option: CommandOption) -> inspect.Parameter:
    flag = f"--{option.name.replace('_', '-')}"
    written = typer.Option(flag, help=option.help, min=option.lowest, max=option.highest)
    return _parameter(option.name, Annotated[option.kind, written], option.default)


def _parameter(name: str, annotation: object, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
