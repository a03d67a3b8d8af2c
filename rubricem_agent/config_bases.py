"""Configs that derive from others: a file names its bases and holds only what differs, as Hydra composes it.

    defaults:
      - verl_rubricem_8b      the file verl_rubricem_8b.yaml beside this one, or of the package
      - _self_                what this file says itself; last where it is not named

A later entry wins. Sections are merged key by key; lists and values are replaced.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rubricem_env.domain.errors import ConfigError

BASES = "defaults"
SELF = "_self_"
OF_VERL = ("ppo_trainer", "ppo_megatron_trainer")
"""Bases within veRL, which Hydra alone finds: its own values are not known without it."""

ReadFile = Callable[[Path], dict[str, Any]]


def compose(path: Path, read: ReadFile, *, shipped: Path, derived: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The mapping of a file over those of its bases; `read` reads one file, and `shipped` has the package's configs.

    Raises:
        ConfigError: a file cannot be read, a base is missing, or a file derives from itself.
    """
    if path in derived:
        raise ConfigError(f"{path} derives from itself: {' -> '.join(file.stem for file in (*derived, path))}.")
    fields = read(path)
    names = fields.pop(BASES, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(
            f"{path} has {BASES}: {names!r}; give a list of names of configs, such as [demo_almanac, _self_]."
        )
    composed: dict[str, Any] = {}
    for name in names if SELF in names else [*names, SELF]:
        if name == SELF:
            composed = merge(composed, fields)
        elif name not in OF_VERL:
            base = find_base(name, path, shipped=shipped)
            composed = merge(composed, compose(base, read, shipped=shipped, derived=(*derived, path)))
    return composed


def find_base(name: str, path: Path, *, shipped: Path) -> Path:
    """The file of a base: beside the file that names it, or of the package.

    Raises:
        ConfigError: there is none.
    """
    for folder in (path.parent, shipped):
        base = folder / f"{name}.yaml"
        if base.is_file():
            return base
    raise ConfigError(f"{path} derives from {name}, and there is no {name}.yaml in {path.parent} or {shipped}.")


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """The base with the values of `over`, section by section."""
    merged = dict(base)
    for key, value in over.items():
        known = merged.get(key)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            merged[key] = merge(known, value)
        else:
            merged[key] = value
    return merged
