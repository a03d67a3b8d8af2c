"""Reads a section of settings, and refuses an unknown key with the nearest known one."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar, get_args

from pydantic import BaseModel

from rubricem_agent.config.search_engines import EngineConfig
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.inputs import suggest_name, validating

Section = TypeVar("Section", bound=BaseModel)
RENAMED: Mapping[str, str] = MappingProxyType({"audit": "held_out_judge"})
"""Keys of earlier releases, and what they are called now."""


def refuse_unknown(section: Mapping[Any, Any], kind: type[BaseModel], *, where: str, separator: str = ".") -> None:
    """Refuse a key that the model, or a model within it, does not have; `separator` stands after `where` in a path.

    Raises:
        ConfigError: there is such a key, or a value stands in the place of a model's keys.
    """
    for key, value in section.items():
        field = kind.model_fields.get(key)
        if field is None:
            if (now := RENAMED.get(key)) in kind.model_fields:
                raise ConfigError(f"{where} has the key {key!r}, which is {now!r} now; its values are the same.")
            groups = {name: _model_in(one.annotation) for name, one in kind.model_fields.items()}
            inside = [name for name, one in groups.items() if one and key in one.model_fields]
            alike = suggest_name(str(key), kind.model_fields, cutoff=0.5)
            known = f"did you mean {inside[0]}.{key}?" if len(inside) == 1 else alike
            raise ConfigError(f"{where} has the unknown key {key!r}; {known}")
        if (inner := _model_in(field.annotation)) is not None:
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, Mapping):
                    refuse_unknown(part, inner, where=f"{where}{separator}{key}")
                elif isinstance(part, str | int | float) and not (field.metadata or issubclass(inner, EngineConfig)):
                    at, keys = f"{where}{separator}{key}", ", ".join(f"{key}.{name}" for name in inner.model_fields)
                    raise ConfigError(f"{at} is {part!r}, which is no section; its keys are {keys}.")


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The model that a field holds, optional, in a tuple or alone."""
    found = [one for one in (annotation, *get_args(annotation)) if isinstance(one, type) and issubclass(one, BaseModel)]
    return found[0] if found else None


def read_mapping(section: Mapping[str, Any], kind: type[Section], *, where: str, separator: str = ".") -> Section:
    """Read settings from a mapping; raises ConfigError on an unknown key at any depth or a value out of range."""
    refuse_unknown(section, kind, where=where, separator=separator)
    with validating(f"{where} is refused", error=ConfigError):
        # Not strict: YAML and TOML have strings for paths and lists for tuples, and YAML reads 4e-5 as text.
        return kind.model_validate(section, strict=False)
