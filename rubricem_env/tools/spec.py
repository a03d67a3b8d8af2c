"""Tool specs: a name, typed parameters and aliases.

Those of the paper's two tools and of the page tools are in specs.json.
"""

import json
from collections.abc import Mapping
from typing import Any, Literal, get_args

from pydantic import TypeAdapter

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.inputs import package_text

ArgumentValue = str | int | float | bool | list[Any] | dict[str, Any] | None
MAX_QUERY_CHARACTERS = 2_000
"""No search engine reads more; a longer query is an error, not a cost."""
Kind = Literal["string", "integer", "number", "boolean", "json"]
"""How a written parameter is read. `json` is anything else, for third-party tools."""


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
