"""The base of settings that a user writes in Python: what is wrong is refused in one sentence."""

from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.inputs import suggest_name, validating

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)


class _OneSentence(ModelMetaclass):
    """Converts the refusal of a call in Python. Inside other models pydantic names the location, as it does anyway."""

    def __call__(cls, *args: Any, **settings: Any) -> Any:
        name = cls.__name__
        known = tuple(cast("type[BaseModel]", cls).model_fields)
        if args:
            raise ConfigError(f"{name} takes its settings by name: {name}({known[0]}=...).")
        unknown = next((key for key in settings if key not in known), None)
        if unknown is not None:
            raise ConfigError(f"{name} has no setting {unknown!r}; {suggest_name(unknown, known)}")
        with validating(f"{name} is refused", error=ConfigError):
            return super().__call__(**settings)


class Settings(Frozen, metaclass=_OneSentence):
    """Settings with a default for each."""
