"""Converts the parameters of a call to the types of its tool's spec."""

import json
import re

from rubricem_env.domain.errors import ToolError
from rubricem_env.domain.trajectory import ToolCall
from rubricem_env.tools.spec import ArgumentValue, Parameter, ToolSpec


def read_years(written: str) -> tuple[int, int] | None:
    """A year, or a range open on either side, in the form that the spec allows: 2020, 2018-2022, 2020-, -2015."""
    if not written:
        return None
    first, dash, last = (part.strip() for part in written.partition("-"))
    return int(first or 0), int((last or 9999) if dash else first)


_SHOWN = 30
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def read_arguments(call: ToolCall, spec: ToolSpec) -> dict[str, ArgumentValue]:
    """The arguments of a repaired call by the names of the tool's own schema.

    Raises:
        ToolError: a value does not fit; never for a call that `repair_call` returned.
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
        ToolError: it is not of the parameter's kind, or out of its range.
    """
    shown = f"{parameter.name} is {written[:_SHOWN]!r}"
    if parameter.kind == "string":
        if parameter.pattern and not re.fullmatch(parameter.pattern, written):
            raise ToolError(f"{shown}; write {parameter.example}.")
        if parameter.choices and written not in parameter.choices:
            raise ToolError(f"{shown}; it is one of {', '.join(parameter.choices)}.")
        return written
    if parameter.kind == "boolean":
        if written.strip().lower() not in _BOOLEANS:
            raise ToolError(f"{shown}; it is true or false.")
        return _BOOLEANS[written.strip().lower()]
    return _read_json(written) if parameter.kind == "json" else _read_number(written, parameter)


def _read_number(written: str, parameter: Parameter) -> int | float:
    whole = parameter.kind == "integer"
    form = r"[+-]?[0-9]{1,18}" if whole else r"[+-]?[0-9]{1,18}(?:\.[0-9]{1,18})?"
    text = written.strip()
    if re.fullmatch(form, text, re.ASCII):
        value: int | float = int(text) if whole else float(text)
        low, high = parameter.minimum, parameter.maximum
        if (low is None or value >= low) and (high is None or value <= high):
            return value
    bounds = (("from", parameter.minimum), ("to", parameter.maximum))
    words = [
        "a whole number" if whole else "a number",
        *(f"{word} {bound:g}" for word, bound in bounds if bound is not None),
    ]
    raise ToolError(f"{parameter.name} is {written[:_SHOWN]!r}; it is {' '.join(words)}.")


def _read_json(written: str) -> ArgumentValue:
    try:
        value: ArgumentValue = json.loads(written)
        return value
    except (ValueError, RecursionError):
        # A bare word is how a policy writes a string where the schema allows several types.
        return written
