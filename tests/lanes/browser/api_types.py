"""The viewer's contract as TypeScript: `python -m tests.lanes.browser.api_types` writes web/src/lib/api.ts anew."""

import types
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from rubricem_viewer import ablation
from rubricem_viewer.api import evaluations, figures, groups, lessons, questions, runs, scores, trajectories

API_TS = Path(__file__).parents[3] / "rubricem_viewer" / "web" / "src" / "lib" / "api.ts"
HEAD = "// Made from rubricem_viewer/*.py by tests/lanes/browser/api_types.py; the tests compare the two.\n"
MODULES = (scores, runs, figures, trajectories, groups, questions, evaluations, lessons, ablation)
PLAIN = {str: "string", int: "number", float: "number", bool: "boolean", Any: "unknown", types.NoneType: "null"}


def type_script() -> str:
    """An interface for each model, in the order of the modules, and then for the models that those are made of."""
    found = {
        name: model
        for module in MODULES
        for name, model in vars(module).items()
        if name.isidentifier()
        and _is_model(model)
        and model.__module__ == module.__name__
        and not model.__pydantic_generic_metadata__["parameters"]
    }
    waiting = list(found.values())
    while waiting:
        for field in waiting.pop(0).model_fields.values():
            for model in _models_in(field.annotation):
                if model not in found.values():
                    found[model.__name__] = model
                    waiting.append(model)
    return HEAD + "".join(_interface(name, model) for name, model in found.items())


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _models_in(kind: Any) -> list[type[BaseModel]]:
    return [kind] if _is_model(kind) else [model for part in get_args(kind) for model in _models_in(part)]


def _interface(name: str, model: type[BaseModel]) -> str:
    fields = "".join(f"  {name}: {_written(field.annotation)};\n" for name, field in model.model_fields.items())
    return f"\nexport interface {name} {{\n{fields}}}\n"


def _written(kind: Any) -> str:
    if kind in PLAIN:
        return PLAIN[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _written(arguments[0])
    if origin is Literal:
        return " | ".join(f'"{value}"' for value in arguments)
    if origin in (Union, types.UnionType):
        return " | ".join(dict.fromkeys(_written(argument) for argument in arguments))
    if origin is tuple and arguments[-1] is Ellipsis:
        return f"Array<{_written(arguments[0])}>"
    if origin is tuple:
        return f"[{', '.join(_written(argument) for argument in arguments)}]"
    if origin is dict:
        return f"Record<string, {_written(arguments[1])}>"
    if issubclass(kind, Enum):
        return " | ".join(f'"{member.value}"' for member in kind)
    return str(kind.__name__)


if __name__ == "__main__":
    API_TS.write_text(type_script(), encoding="utf-8")
