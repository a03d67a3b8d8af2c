"""Brings a call as written by a policy into the form of its tool (the paper's tool name normalisation)."""

import re
from collections.abc import Iterable, Sequence

from rubricem_env.domain.errors import ToolError
from rubricem_env.domain.inputs import nearest_name
from rubricem_env.domain.trajectory import ToolCall, ToolResult, ToolStatus
from rubricem_env.tools.arguments import read_argument
from rubricem_env.tools.spec import Parameter, ToolSpec

_NEAR = 0.85
"""How similar two names must be to mean the same; `search_google` and `snippet_search` have 0.44."""
_NOISE = re.compile(r"[^a-z0-9]+")
_SHOWN_ARGUMENTS = 60


def repair_call(call: ToolCall, specs: Sequence[ToolSpec]) -> ToolCall | ToolResult:
    """The call with canonical names, or an error result that says what to write instead.

    The given call itself if nothing needed repair; otherwise `written_name` keeps the name as it was written.
    """
    spec = find_tool(call.name, specs)
    if spec is None:
        refusal = f"there is no tool {call.name[:_SHOWN_ARGUMENTS]!r}" if call.name else "the call names no tool"
        message = f"{refusal}; the tools are {', '.join(spec.name for spec in specs)}. Call one of these."
        return ToolResult(status=ToolStatus.ERROR, message=message)
    try:
        if len(call.query) > spec.max_query:
            length = f"the query has {len(call.query):,} characters"
            raise ToolError(f"{length}; {spec.name} takes up to {spec.max_query:,}. Shorten it.")
        if spec.query_name and not call.query.strip():
            raise ToolError(f"the call has no {spec.query_name}; write it between the tags of the call.")
        parameters = _repair_parameters(call, spec)
    except ToolError as problem:
        return ToolResult(status=ToolStatus.ERROR, message=str(problem))
    if call.name == spec.name and parameters == call.parameters:
        return call
    written_name = call.written_name or (call.name if call.name != spec.name else "")
    return ToolCall(name=spec.name, query=call.query, parameters=parameters, written_name=written_name)


def find_tool(name: str, specs: Sequence[ToolSpec]) -> ToolSpec | None:
    """The tool with that name or alias, in any spelling, or with the most similar name."""
    for spec in specs:
        if spec.name == name:
            return spec
    # Aliases first, so that no alias shadows the real name of another tool.
    spelt = _by_spelling(specs)
    return spelt.get(_nearest(name, spelt))


def is_guess(name: str, specs: Sequence[ToolSpec]) -> bool:
    """Whether a name is neither that of a tool nor an alias, in any spelling: a call would go to the nearest one."""
    return _plain(name) not in _by_spelling(specs)


def _by_spelling(specs: Sequence[ToolSpec]) -> dict[str, ToolSpec]:
    by_alias = {_plain(alias): spec for spec in specs for alias in spec.aliases}
    return by_alias | {_plain(spec.name): spec for spec in specs}


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
            known = ", ".join(parameter.name for parameter in spec.parameters)
            takes = f"its parameters are {known}" if known else "it takes a query alone"
            unknown = f"{spec.name} has no parameter {name[:_SHOWN_ARGUMENTS]!r}"
            raise ToolError(f"{unknown}; {takes}. Write the call without it.")
        else:
            repaired.setdefault(name, value)
    missing = [
        parameter.name for parameter in spec.parameters if parameter.is_required and parameter.key not in repaired
    ]
    if missing:
        raise ToolError(f"{spec.name} needs the parameter {missing[0]}; write it as an attribute of the call.")
    return tuple(sorted(repaired.items()))


def _find_parameter(name: str, parameters: Iterable[Parameter]) -> Parameter | None:
    spelt: dict[str, Parameter] = {}
    for parameter in parameters:
        for written in (parameter.name, *parameter.aliases):
            spelt.setdefault(_plain(written), parameter)
    return spelt.get(_nearest(name, spelt))


def _nearest(name: str, known: Iterable[str]) -> str:
    plain = _plain(name[:_SHOWN_ARGUMENTS])
    names = list(known)
    return plain if plain in names else nearest_name(plain, names, cutoff=_NEAR) or ""


def _plain(name: str) -> str:
    return _NOISE.sub("", name.lower())
