"""One seed for a run: groups of keys that were given none of their own have the run's."""

from typing import TypeVar

from rubricem_env.domain.base import Frozen

Settings = TypeVar("Settings", bound=Frozen)


def with_run_seed(settings: Settings, seed: int) -> Settings:
    """The same settings, with `seed` in the place of every seed that was left open, at any depth."""
    filled = {name: _filled(name, value, seed) for name, value in settings}
    return settings.model_copy(update={name: value for name, value in filled.items() if value is not None})


def _filled(name: str, value: object, seed: int) -> object:
    """What stands in the place of a value; None where the value stays."""
    if isinstance(value, Frozen):
        return with_run_seed(value, seed)
    return seed if name == "seed" and value is None else None
