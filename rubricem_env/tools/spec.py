"""What a tool takes: its name, its parameters with types and ranges, and the near misses that mean the same."""

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from rubricem_env.domain.base import Frozen, Text

ArgumentValue = str | int | float | bool | list[Any] | dict[str, Any] | None
MAX_QUERY_CHARACTERS = 2_000
"""No search engine reads more; a longer query is an error, not a cost."""


class Kind(StrEnum):
    """How a written parameter is read."""

    TEXT = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    JSON = "json"
    """Anything else: read as JSON, for tools of other people."""


class Parameter(Frozen):
    """One optional or required parameter of a tool."""

    name: Text
    """As the tool's own schema writes it, such as fieldsOfStudy."""
    kind: Kind = Kind.TEXT
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
    """False for tools of other people: a parameter that is not declared is passed on, for their server to judge."""
    written_schema: Text = ""
    """The JSON schema as its own server published it, where there is one."""

    def input_schema(self) -> dict[str, Any]:
        """The arguments as a JSON schema; a foreign tool keeps its own."""
        if self.written_schema:
            schema: dict[str, Any] = json.loads(self.written_schema)
            return schema
        query = {"type": "string", "minLength": 1, "maxLength": self.max_query}
        properties = {self.query_name: query, **{each.name: _schema_of(each) for each in self.parameters}}
        required = [self.query_name, *(each.name for each in self.parameters if each.is_required)]
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _schema_of(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {} if parameter.kind is Kind.JSON else {"type": parameter.kind.value}
    whole = parameter.kind is Kind.INTEGER
    facts = {
        "description": parameter.description,
        "minimum": _bound(parameter.minimum, whole),
        "maximum": _bound(parameter.maximum, whole),
        "enum": list(parameter.choices),
        "pattern": f"^(?:{parameter.pattern})$" if parameter.pattern else "",
    }
    return schema | {name: fact for name, fact in facts.items() if fact not in ("", None, [])}


def _bound(bound: float | None, whole: bool) -> float | None:
    return int(bound) if whole and bound is not None else bound


def spec_from_schema(name: str, description: str, schema: Mapping[str, Any]) -> ToolSpec:
    """A foreign tool by the JSON schema that its server publishes.

    The text of a call becomes its first required string, or the first string there is; all else is attributes.
    """
    properties = schema.get("properties")
    fields: dict[str, Any] = properties if isinstance(properties, dict) else {}
    listed = schema.get("required")
    required = [field for field in listed if field in fields] if isinstance(listed, list) else []
    texts = [field for field in (*required, *fields) if _kind_of(fields[field]) is Kind.TEXT]
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
    return Kind(written) if written in ("string", "integer", "number", "boolean") else Kind.JSON
