"""Reads a section of settings, and refuses an unknown key with the nearest known one."""

from collections.abc import Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel

from rubricem_agent.config.search_engines import EngineConfig
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.inputs import suggest_name, validating

Section = TypeVar("Section", bound=BaseModel)


def refuse_unknown(section: Mapping[Any, Any], kind: type[BaseModel], *, where: str, separator: str = ".") -> None:
    """Refuse a key that the model, or a model within it, does not have; `separator` stands after `where` in a path.

    Raises:
        ConfigError: there is such a key, or a value stands in the place of a model's keys.
    """
    for key, value in section.items():
        field = kind.model_fields.get(key)
        if field is None:
            raise ConfigError(f"{where} has the unknown key {key!r}; {_suggest_key(str(key), kind)}")
        inner = _model_in(field.annotation)
        if inner is None:
            continue
        # A field with a validator of its own, and the engine of a search tool, may be given as a text.
        takes_text = bool(field.metadata) or issubclass(inner, EngineConfig)
        path = f"{where}{separator}{key}"
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, Mapping):
                refuse_unknown(part, inner, where=path)
            elif isinstance(part, str | int | float) and not takes_text:
                keys = ", ".join(f"{key}.{name}" for name in inner.model_fields)
                raise ConfigError(f"{path} is {part!r}, which is no section; its keys are {keys}.")


def _suggest_key(key: str, kind: type[BaseModel]) -> str:
    """The key of the one group that has it, else the nearest key."""
    groups = {name: _model_in(field.annotation) for name, field in kind.model_fields.items()}
    owners = [name for name, group in groups.items() if group and key in group.model_fields]
    if len(owners) == 1:
        return f"did you mean {owners[0]}.{key}?"
    return suggest_name(key, kind.model_fields, cutoff=0.5)


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The model that a field holds, optional, in a tuple or alone."""
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


def read_mapping(section: Mapping[str, Any], kind: type[Section], *, where: str, separator: str = ".") -> Section:
    """Read settings from a mapping; raises ConfigError on an unknown key at any depth or a value out of range."""
    refuse_unknown(section, kind, where=where, separator=separator)
    with validating(f"{where} is refused", error=ConfigError):
        # Not strict: YAML and TOML have strings for paths and lists for tuples, and YAML reads 4e-5 as text.
        return kind.model_validate(section, strict=False)
