"""Tool specs, and the repair of calls to them (the paper's tool name normalisation).

A spec has a name, typed parameters and aliases. Those of the paper's two tools and of the page tools are in specs.json.
`repair_call` brings a call as written by a policy into the form of its tool; `read_arguments` converts its parameters.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

from pydantic import TypeAdapter

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import ToolError
from rubricem_env.domain.inputs import nearest_name, package_text
from rubricem_env.domain.trajectory import ToolCall, ToolResult, ToolStatus

ArgumentValue = str | int | float | bool | list[Any] | dict[str, Any] | None
MAX_QUERY_CHARACTERS = 2_000
"""No search engine reads more; a longer query is an error, not a cost."""


Kind = Literal["string", "integer", "number", "boolean", "json"]
"""How a written parameter is read. `json` is anything else, for third-party tools."""


class Parameter(Frozen):
    """One optional or required parameter of a tool."""

    name: Text
    """As the tool's own schema writes it, such as fieldsOfStudy."""
    kind: Kind = "string"
    description: Text = ""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[Text, ...] = ()
    pattern: Text = ""
    """A regular expression that the whole value must match."""
    example: Text = ""
    """Shown where the pattern is not met."""
    aliases: tuple[Text, ...] = ()
    is_required: bool = False

    @property
    def key(self) -> str:
        """As the scaffold's lexer writes attribute names: in lower case."""
        return self.name.lower()


class ToolSpec(Frozen):
    """One tool, as it is offered to policies and over MCP."""

    name: Text
    description: Text = ""
    parameters: tuple[Parameter, ...] = ()
    aliases: tuple[Text, ...] = ()
    """Other names that policies write for it; each is repaired and recorded."""
    query_name: Text = "query"
    """The parameter that the text of a call becomes."""
    max_query: int = MAX_QUERY_CHARACTERS
    is_guarded: bool = True
    """False for third-party tools: undeclared parameters are passed on to their server."""
    written_schema: Text = ""
    """The JSON schema as published by its server, if there is one."""

    def input_schema(self) -> dict[str, Any]:
        """The arguments as a JSON schema; a third-party tool keeps its own."""
        if self.written_schema:
            schema: dict[str, Any] = json.loads(self.written_schema)
            return schema
        query = {"type": "string", "minLength": 1, "maxLength": self.max_query}
        properties = {self.query_name: query, **{each.name: _schema_of(each) for each in self.parameters}}
        required = [self.query_name, *(each.name for each in self.parameters if each.is_required)]
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _schema_of(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {} if parameter.kind == "json" else {"type": parameter.kind}
    low, high = (
        int(bound) if parameter.kind == "integer" and bound is not None else bound
        for bound in (parameter.minimum, parameter.maximum)
    )
    facts = {
        "description": parameter.description,
        "minimum": low,
        "maximum": high,
        "enum": list(parameter.choices),
        "pattern": f"^(?:{parameter.pattern})$" if parameter.pattern else "",
    }
    return schema | {name: fact for name, fact in facts.items() if fact not in ("", None, [])}


def spec_from_schema(name: str, description: str, schema: Mapping[str, Any]) -> ToolSpec:
    """The spec of a third-party tool from the JSON schema of its server.

    The text of a call becomes the first required string, else the first string; the other parameters are attributes.
    """
    properties = schema.get("properties")
    fields: dict[str, Any] = properties if isinstance(properties, dict) else {}
    listed = schema.get("required")
    required = [field for field in listed if field in fields] if isinstance(listed, list) else []
    texts = [field for field in (*required, *fields) if _kind_of(fields[field]) == "string"]
    query_name = texts[0] if texts else ""
    parameters = tuple(
        Parameter(name=field, kind=_kind_of(fields[field]), is_required=field in required)
        for field in fields
        if field != query_name
    )
    return ToolSpec(
        name=name,
        description=description,
        parameters=parameters,
        query_name=query_name,
        max_query=100_000,
        is_guarded=False,
        written_schema=json.dumps(dict(schema)),
    )


def _kind_of(field: object) -> Kind:
    written = field.get("type") if isinstance(field, dict) else None
    kinds: tuple[Kind, ...] = get_args(Kind)
    return next((kind for kind in kinds if kind == written), "json")


GOOGLE_SEARCH = "google_search"
SNIPPET_SEARCH = "snippet_search"
FETCH_PAGE = "fetch_page"
OPEN = "open"
FIND = "find"

DEFAULT_LIMIT = 3

SHIPPED_SPECS = TypeAdapter(tuple[ToolSpec, ...]).validate_json(package_text("rubricem_env.tools", "specs.json"))
GOOGLE_SEARCH_SPEC, SNIPPET_SEARCH_SPEC, FETCH_PAGE_SPEC, OPEN_SPEC, FIND_SPEC = SHIPPED_SPECS


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
        asked = f"there is no tool {call.name[:_SHOWN_ARGUMENTS]!r}" if call.name else "the call names no tool"
        message = f"{asked}; the tools are {', '.join(spec.name for spec in specs)}. Call one of these."
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
    spelt = {_plain(alias): spec for spec in specs for alias in spec.aliases}
    spelt |= {_plain(spec.name): spec for spec in specs}
    return spelt.get(_nearest(name, spelt))


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
            known = ", ".join(each.name for each in spec.parameters)
            takes = f"its parameters are {known}" if known else "it takes a query alone"
            unknown = f"{spec.name} has no parameter {name[:_SHOWN_ARGUMENTS]!r}"
            raise ToolError(f"{unknown}; {takes}. Write the call without it.")
        else:
            repaired.setdefault(name, value)
    missing = [each.name for each in spec.parameters if each.is_required and each.key not in repaired]
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
