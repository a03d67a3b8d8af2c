"""Reads YAML configs: a file or the name of one of the package's, with KEY=VALUE changes on top."""

import math
from collections.abc import Iterable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rubricem_agent.config_bases import compose
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.inputs import parse_assignment

_PACKAGE = Path(__file__).parent
_MOST_VALUES = 100_000
CONFIGS = next(folder for folder in (_PACKAGE / "configs", _PACKAGE.parent / "configs") if folder.is_dir())
"""The configs of the package: a wheel has them inside, a clone beside it."""


def find_config(named: Path) -> Path:
    """The file of a config: a path, or the name of one of the package's, such as `demo_almanac`."""
    shipped = CONFIGS / f"{named}.yaml"
    return shipped if len(named.parts) == 1 and shipped.is_file() and not named.is_file() else named


def read_yaml(named: Path, *, offers: str = "*") -> dict[str, Any]:
    """The mapping in a YAML file, over those of its bases.

    Raises:
        ConfigError: a file holds none; the message names the package's configs that `offers` matches.
    """
    return compose(find_config(named), partial(_read_file, offers=offers), shipped=CONFIGS)


def _read_file(path: Path, *, offers: str) -> dict[str, Any]:
    try:
        fields = _parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as cause:
        reason = " ".join(str(cause).split())
        shipped = sorted(file.stem for file in CONFIGS.glob(f"{offers}.yaml"))
        names = ", ".join(name for name in shipped if not name.startswith("accelerate"))
        raise ConfigError(
            f"cannot read the config {path}: {reason}. Give the path of a YAML file, or a name: {names}."
        ) from cause
    if not isinstance(fields, dict) or not fields:
        held = "is empty" if not fields else f"holds a YAML {type(fields).__name__}"
        raise ConfigError(f"{path} {held}; a config has lines KEY: VALUE, as those in {CONFIGS} do.")
    return fields


def parse_yaml_assignment(text: str, *, example: str) -> tuple[str, Any]:
    """The key of a KEY=VALUE argument, and its value read as YAML.

    Raises:
        ConfigError: the argument is not KEY=VALUE, or the value is not YAML.
    """
    key, value = parse_assignment(text, example=example)
    try:
        return key, _parse_yaml(value)
    except ValueError as cause:
        raise ConfigError(f"the value of {text!r} is not YAML; write KEY=VALUE, such as {example}.") from cause


def _parse_yaml(text: str) -> Any:
    # Imported here: most commands read no YAML.
    yaml: Any = import_module("yaml")
    try:
        value = yaml.safe_load(text)
        size = _written_out(value, {})
    except (yaml.YAMLError, RecursionError) as cause:
        raise ValueError(str(cause)) from cause
    if size > _MOST_VALUES:
        raise ValueError(f"its aliases stand for {size:.0e} values; a config has at most {_MOST_VALUES:,}")
    return value


def _written_out(value: object, sizes: dict[int, float]) -> float:
    """How many values there would be without aliases, which share what they name; infinite where one holds itself."""
    if not isinstance(value, dict | list):
        return 1.0
    if id(value) not in sizes:
        sizes[id(value)] = math.inf
        inner = value.values() if isinstance(value, dict) else value
        sizes[id(value)] = 1.0 + sum(_written_out(one, sizes) for one in inner)
    return sizes[id(value)]


def read_fields(
    config: Path, changes: Iterable[str], *, defaults: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> dict[str, Any]:
    """The settings of a config with KEY=VALUE changes on top; SECTION.KEY=VALUE changes one key of a section.

    `defaults` are the sections that such a change begins with where the config has none.

    Raises:
        ConfigError: the file or a change cannot be read, or the config is one of veRL.
    """
    fields = read_yaml(config)
    if not fields.keys().isdisjoint(("hydra", "actor_rollout_ref")):
        raise ConfigError(f"{config} is a config of veRL, which has a trainer of its own: rubricem train-verl {config}")
    for change in changes:
        if change.startswith("-"):
            raise ConfigError(f"{change} is no option; settings are written KEY=VALUE without dashes, as steps=12.")
        key, value = parse_yaml_assignment(change, example="steps=12")
        *sections, last = key.split(".")
        section = fields
        for name in sections:
            inner = section.get(name) or defaults.get(name, {})
            if not isinstance(inner, Mapping):
                raise ConfigError(f"{change}: {name} is {inner!r}, not a section. Write {name}=VALUE.")
            section[name] = dict(inner)
            section = section[name]
        section[last] = value
    return fields
