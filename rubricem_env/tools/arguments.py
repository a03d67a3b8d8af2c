"""Parameters as written, read as the values that their kind asks for."""

import json
import re

from rubricem_env.domain.tool import ToolCall
from rubricem_env.tools.spec import ArgumentValue, Kind, Parameter, ToolSpec

_SHOWN = 30
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class ArgumentError(ValueError):
    """A parameter is out of form; the message is one sentence for the policy."""


def read_arguments(call: ToolCall, spec: ToolSpec) -> dict[str, ArgumentValue]:
    """The arguments of a repaired call by the names of the tool's own schema.

    Raises:
        ArgumentError: a value does not fit; cannot happen to a call that `repair_call` let through.
    """
    by_key = {parameter.key: parameter for parameter in spec.parameters}
    arguments: dict[str, ArgumentValue] = {spec.query_name: call.query} if spec.query_name else {}
    for key, written in call.parameters:
        parameter = by_key.get(key)
        arguments[parameter.name if parameter else key] = read_argument(written, parameter) if parameter else written
    return arguments


def read_argument(written: str, parameter: Parameter) -> ArgumentValue:
    """One value.

    Raises:
        ArgumentError: it is not of the parameter's kind, or out of its range.
    """
    if parameter.kind is Kind.TEXT:
        return _read_text(written, parameter)
    if parameter.kind is Kind.BOOLEAN:
        return _read_boolean(written, parameter)
    if parameter.kind is Kind.JSON:
        return _read_json(written)
    return _read_number(written, parameter)


def _read_text(written: str, parameter: Parameter) -> str:
    if parameter.pattern and not re.fullmatch(parameter.pattern, written):
        raise ArgumentError(f"{parameter.name} is {written[:_SHOWN]!r}; write {parameter.example}.")
    if parameter.choices and written not in parameter.choices:
        raise ArgumentError(f"{parameter.name} is {written[:_SHOWN]!r}; it is one of {', '.join(parameter.choices)}.")
    return written


def _read_boolean(written: str, parameter: Parameter) -> bool:
    value = _BOOLEANS.get(written.strip().lower())
    if value is None:
        raise ArgumentError(f"{parameter.name} is {written[:_SHOWN]!r}; it is true or false.")
    return value


def _read_number(written: str, parameter: Parameter) -> int | float:
    whole = parameter.kind is Kind.INTEGER
    form = r"[+-]?[0-9]{1,18}" if whole else r"[+-]?[0-9]{1,18}(?:\.[0-9]{1,18})?"
    text = written.strip()
    if re.fullmatch(form, text, re.ASCII):
        value: int | float = int(text) if whole else float(text)
        low, high = parameter.minimum, parameter.maximum
        if (low is None or value >= low) and (high is None or value <= high):
            return value
    raise ArgumentError(f"{parameter.name} is {written[:_SHOWN]!r}; it is {_describe_range(parameter)}.")


def _describe_range(parameter: Parameter) -> str:
    noun = "a whole number" if parameter.kind is Kind.INTEGER else "a number"
    bounds = [
        f"{word} {bound:g}"
        for word, bound in (("from", parameter.minimum), ("to", parameter.maximum))
        if bound is not None
    ]
    return " ".join((noun, *bounds))


def _read_json(written: str) -> ArgumentValue:
    try:
        value: ArgumentValue = json.loads(written)
        return value
    except (ValueError, RecursionError):
        # A bare word is how a policy writes a string where the schema allows several types.
        return written
