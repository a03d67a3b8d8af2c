"""A run's YAML file read without Hydra, so that a plan or a missing package can be told where nothing is installed.

Only what the file itself says is seen, and veRL's own defaults for the few keys that it leaves out; the shipped files
write out all that a plan needs.
"""

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from rubricem_env.domain.errors import ConfigError

Config = Mapping[str, Any]
_TYPING_MISTAKE = 0.9
"""How alike a key that the file lacks and one that it has must be to be taken for the same."""


def read_run_file(path: Path, changes: Iterable[str] = ()) -> Config:
    """The file with `a.b.c=value` changes on top, as Hydra would make them; `+` and `++` before a key add, `~` removes.

    A key that the file lacks may be one of veRL's, which only veRL knows; one that is almost another is refused here.

    Raises:
        ConfigError: the file or a change cannot be read, or a change's key is mistyped.
    """
    try:
        config: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as cause:
        raise ConfigError(f"cannot read the config {path}: {cause}. Give the path of a YAML file.") from cause
    if not isinstance(config, dict):
        raise ConfigError(f"{path} holds a YAML {type(config).__name__}; a config is a mapping of keys to values.")
    for change in changes:
        _apply(config, change)
    return config


def value_at(config: Config, key: str, default: Any) -> Any:
    """The value of a dotted key; the default where a part of it is missing or null."""
    found: Any = config
    for part in key.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return default
        found = found[part]
    return default if found is None else found


def _apply(config: dict[str, Any], change: str) -> None:
    removes = change.startswith("~")
    key, sign, text = change.lstrip("+~").partition("=")
    if not key or not (sign or removes):
        raise ConfigError(f"{change!r} changes no setting; write KEY=VALUE, such as trainer.nnodes=2.")
    *path, last = key.strip().split(".")
    place = config
    for part in path:
        inner = place.get(part)
        if not isinstance(inner, dict):
            inner = place[part] = {}
        place = inner
    if removes:
        place.pop(last, None)
        return
    near = difflib.get_close_matches(last, place, n=1, cutoff=_TYPING_MISTAKE)
    if last not in place and near and not change.startswith("+"):
        raise ConfigError(f"{change!r} changes no key of the file; did you mean {near[0]!r}?")
    try:
        place[last] = yaml.safe_load(text)
    except yaml.YAMLError as cause:
        raise ConfigError(f"{change!r} gives no YAML value: {cause}.") from cause
