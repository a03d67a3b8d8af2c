"""Tool specs: a name, typed parameters and aliases.

Those of the paper's two tools and of the page tools are in specs.json.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

from pydantic import TypeAdapter

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import ToolError
from rubricem_env.domain.inputs import package_text

ArgumentValue = str | int | float | bool | list[Any] | dict[str, Any] | None
MAX_QUERY_CHARACTERS = 2_000
"""No search engine reads more; a longer query is an error, not a cost."""
Kind = Literal["string", "integer", "number", "boolean", "json"]
"""How a written parameter is read. `json` is anything else, for third-party tools."""


_TOOL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:-]{0,127}")
_PARAMETER_NAME = re.compile(r"[^\W\d][\w.$\[\]-]{0,127}|[$@_][\w.-]{1,126}", re.ASCII)
MAX_PARAMETERS = 100
MAX_SCHEMA = 100_000
"""Characters of the schema of a third-party tool, and of its description."""


def check_tool_name(name: str) -> None:
    """Refuse a name that is not letters, digits and `_ . / : -`: names stand in the policy's rules as they are.

    Raises:
        ToolError: the name has another character, or more than 128 of them.
    """
    if not _TOOL_NAME.fullmatch(name):
        raise ToolError(
            f"a tool is named {_shown(name)}; a name has at most 128 letters, digits, and `_ . / : -`. Rename it, or "
            "leave it out with `only`."
        )


def _shown(name: str) -> str:
    written = ascii(name)
    return written if len(written) <= 60 else f"{written[:57]}..."


class Parameter(Frozen):
    """One optional or required parameter of a tool."""

    name: Text
    """The name as the tool's own schema writes it, such as fieldsOfStudy."""
    kind: Kind = "string"
    description: Text = ""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[Text, ...] = ()
    pattern: Text = ""
    """A regular expression that the whole value must match."""
    example: Text = ""
    """The example that is shown where the pattern is not met."""
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
    """Whether undeclared parameters are refused. Those of third-party tools are passed on to their server."""
    written_schema: Text = ""
    """The JSON schema as published by its server, if there is one."""

    def input_schema(self) -> dict[str, Any]:
        """The arguments as a JSON schema; a third-party tool keeps its own."""
        if self.written_schema:
            schema: dict[str, Any] = json.loads(self.written_schema)
            return schema
        query = {"type": "string", "minLength": 1, "maxLength": self.max_query}
        properties = {
            self.query_name: query,
            **{parameter.name: _schema_of(parameter) for parameter in self.parameters},
        }
        required = [self.query_name, *(parameter.name for parameter in self.parameters if parameter.is_required)]
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

    Raises:
        ToolError: a name cannot be shown to a policy, or the schema is too large.
    """
    check_tool_name(name)
    written_schema = json.dumps(dict(schema))
    if len(written_schema) + len(description) > MAX_SCHEMA:
        raise ToolError(
            f"the tool {name} describes itself in {len(written_schema) + len(description):,} characters; at most "
            f"{MAX_SCHEMA:,} are read. Leave it out with `only`."
        )
    properties = schema.get("properties")
    fields: dict[str, Any] = properties if isinstance(properties, dict) else {}
    listed = schema.get("required")
    required = [field for field in listed if field in fields] if isinstance(listed, list) else []
    if len(fields) > MAX_PARAMETERS:
        raise ToolError(
            f"the tool {name} has {len(fields)} parameters; at most {MAX_PARAMETERS} are read. Leave it out with "
            "`only`."
        )
    for field in fields:
        if not _PARAMETER_NAME.fullmatch(field):
            raise ToolError(
                f"the tool {name} has a parameter {_shown(field)}; a name has at most 128 letters, digits, and "
                "`_ . - $ [ ]`. Leave the tool out with `only`."
            )
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
        written_schema=written_schema,
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
RUN_SQL = "run_sql"
DEFAULT_LIMIT = 3
SHIPPED_SPECS = TypeAdapter(tuple[ToolSpec, ...]).validate_json(package_text("rubricem_env.tools", "specs.json"))
GOOGLE_SEARCH_SPEC, SNIPPET_SEARCH_SPEC, FETCH_PAGE_SPEC, OPEN_SPEC, FIND_SPEC, RUN_SQL_SPEC = SHIPPED_SPECS
