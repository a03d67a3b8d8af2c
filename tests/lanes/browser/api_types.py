"""The viewer's contract as TypeScript: `python -m tests.lanes.browser.api_types` writes web/src/lib/api.ts anew."""

import types
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from rubricem_agent.viewer import ablation, api_runs, api_trajectories

API_TS = Path(__file__).parents[3] / "rubricem_agent" / "viewer" / "web" / "src" / "lib" / "api.ts"
HEAD = "// Made from rubricem_agent/viewer/api_*.py by tests/lanes/browser/api_types.py; the tests compare the two.\n"
PLAIN = {str: "string", int: "number", float: "number", bool: "boolean", Any: "unknown", types.NoneType: "null"}


def type_script() -> str:
    """An interface for each model, in the order of the modules."""
    models = [
        model
        for module in (api_runs, api_trajectories, ablation)
        for model in vars(module).values()
        if isinstance(model, type) and issubclass(model, BaseModel) and model.__module__ == module.__name__
    ]
    return HEAD + "".join(_interface(model) for model in models)


def _interface(model: type[BaseModel]) -> str:
    fields = "".join(f"  {name}: {_written(field.annotation)};\n" for name, field in model.model_fields.items())
    return f"\nexport interface {model.__name__} {{\n{fields}}}\n"


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
    return str(kind.__name__)


if __name__ == "__main__":
    API_TS.write_text(type_script(), encoding="utf-8")
