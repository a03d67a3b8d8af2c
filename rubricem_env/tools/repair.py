"""Calls as policies write them, brought into the form that the tool takes (the paper's tool name normalisation)."""

import difflib
import re
from collections.abc import Iterable, Sequence

from rubricem_env.domain.tool import ToolCall, ToolResult, ToolStatus
from rubricem_env.tools.arguments import ArgumentError, read_argument
from rubricem_env.tools.spec import Parameter, ToolSpec

_NEAR = 0.85
"""How alike two names must be to mean the same; `search_google` and `snippet_search` are at 0.44."""
_NOISE = re.compile(r"[^a-z0-9]+")
_SHOWN = 60


def repair_call(call: ToolCall, specs: Sequence[ToolSpec]) -> ToolCall | ToolResult:
    """The call with canonical names, or an error result with one sentence on what to write instead.

    Equal to the given call where nothing needed repair; otherwise `written_name` keeps the name as it was written.
    """
    spec = find_tool(call.name, specs)
    if spec is None:
        return unknown_tool(call.name, tuple(spec.name for spec in specs))
    try:
        _check_query(call, spec)
        parameters = _repair_parameters(call, spec)
    except ArgumentError as problem:
        return ToolResult(status=ToolStatus.ERROR, message=str(problem))
    if call.name == spec.name and parameters == call.parameters:
        return call
    written_name = call.written_name or (call.name if call.name != spec.name else "")
    return ToolCall(name=spec.name, query=call.query, parameters=parameters, written_name=written_name)


def find_tool(name: str, specs: Sequence[ToolSpec]) -> ToolSpec | None:
    """The tool of that name, of that name in other spelling, of an alias, or of the one name very much like it."""
    for spec in specs:
        if spec.name == name:
            return spec
    # Aliases first, so that no alias shadows the real name of another tool.
    spelt = {_plain(alias): spec for spec in specs for alias in spec.aliases}
    spelt |= {_plain(spec.name): spec for spec in specs}
    return spelt.get(_nearest(name, spelt))


def unknown_tool(name: str, names: tuple[str, ...]) -> ToolResult:
    """The result of calling a tool that is not there."""
    asked = f"there is no tool {name[:_SHOWN]!r}" if name else "the call names no tool"
    message = f"{asked}; the tools are {', '.join(names)}. Call one of these."
    return ToolResult(status=ToolStatus.ERROR, message=message)


def _check_query(call: ToolCall, spec: ToolSpec) -> None:
    if len(call.query) > spec.max_query:
        raise ArgumentError(
            f"the query has {len(call.query):,} characters; {spec.name} takes up to {spec.max_query:,}. Shorten it."
        )
    if spec.query_name and not call.query.strip():
        raise ArgumentError(f"the call has no {spec.query_name}; write it between the tags of the call.")


def _repair_parameters(call: ToolCall, spec: ToolSpec) -> tuple[tuple[str, str], ...]:
    repaired: dict[str, str] = {}
    for name, value in call.parameters:
        parameter = _find_parameter(name, spec.parameters)
        if parameter is not None:
            if value.strip():
                read_argument(value, parameter)
                # The first of two spellings wins, as the first of two equal attributes does.
                repaired.setdefault(parameter.key, value)
        elif spec.is_guarded:
            raise ArgumentError(_unknown_parameter(name, spec))
        else:
            repaired.setdefault(name, value)
    missing = [each.name for each in spec.parameters if each.is_required and each.key not in repaired]
    if missing:
        raise ArgumentError(f"{spec.name} needs the parameter {missing[0]}; write it as an attribute of the call.")
    return tuple(sorted(repaired.items()))


def _find_parameter(name: str, parameters: Iterable[Parameter]) -> Parameter | None:
    spelt: dict[str, Parameter] = {}
    for parameter in parameters:
        for written in (parameter.name, *parameter.aliases):
            spelt.setdefault(_plain(written), parameter)
    return spelt.get(_nearest(name, spelt))


def _unknown_parameter(name: str, spec: ToolSpec) -> str:
    known = ", ".join(parameter.name for parameter in spec.parameters)
    takes = f"its parameters are {known}" if known else "it takes a query alone"
    return f"{spec.name} has no parameter {name[:_SHOWN]!r}; {takes}. Write the call without it."


def _nearest(name: str, known: Iterable[str]) -> str:
    plain = _plain(name[:_SHOWN])
    names = list(known)
    if plain in names:
        return plain
    matches = difflib.get_close_matches(plain, names, n=1, cutoff=_NEAR)
    return matches[0] if matches else ""


def _plain(name: str) -> str:
    return _NOISE.sub("", name.lower())
