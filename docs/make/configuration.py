"""Writes docs/reference/configuration.md from the models that read the settings; `make docs-reference` calls it."""

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Self, Union, get_args, get_origin

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from pydantic import BaseModel  # noqa: E402
from pydantic.fields import FieldInfo  # noqa: E402

from research.tiny_policy import TinyConfig  # noqa: E402
from rubricem_agent.config import BankConfig, JudgeConfig, PolicyConfig, TeacherConfig, ToolsConfig  # noqa: E402
from rubricem_agent.wiring.eval_config import EvalConfig  # noqa: E402
from trainers.fine_tuning.settings import SftConfig  # noqa: E402
from trainers.local.settings import LocalConfig  # noqa: E402
from trainers.verl_backend.settings import VerlSettings  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "configuration.md"
INTRODUCTION = """# Configuration

<!-- Made by docs/make/configuration.py from the models; `make docs-reference` regenerates it. -->

This page has every key of every settings file. It is made from the models that validate them. Unknown keys are refused
with the nearest known name, and values out of range with the range. A YAML config takes `KEY=VALUE` on top
of the file, with a mapping for a group of keys:
`rubricem train local_almanac steps=48 'loss={kl_coefficient: 0.01}'`.
"""


class Root(NamedTuple):
    """One kind of settings, and where a user writes it."""

    model: type[BaseModel]
    title: str
    where: str


ROOTS = (
    Root(
        LocalConfig,
        "The local trainer",
        "YAML for `rubricem train` and `python -m research.ablate`, such as `local_almanac`.",
    ),
    Root(
        VerlSettings,
        "The veRL trainer",
        "The section `rubricem` of a veRL config for `trainers/verl_ssgrpo.py`; everything else keeps veRL's own keys.",
    ),
    Root(SftConfig, "Fine-tuning", "YAML for `trainers/sft.py`, such as `configs/sft_qwen3_8b.yaml`."),
    Root(TinyConfig, "The tiny policy", "YAML for `research/tiny_policy.py`, such as `configs/tiny_policy.yaml`."),
    Root(
        TeacherConfig,
        "Teacher data",
        "In code, `rubricem_agent.wiring.teacher_data.teach`; `rubricem data teach` has options for most of it.",
    ),
    Root(ToolsConfig, "Search tools", "TOML for `--tools` and `--config`, at the top level or in a table `[tools]`."),
    Root(PolicyConfig, "A policy", "In code, `rubricem_agent.wiring.models`; `--policy` names the first key."),
    Root(JudgeConfig, "A judge", "In code, `rubricem_agent.wiring.models`; `--judge` names the first key."),
    Root(BankConfig, "The rubric bank", "In code, `rubricem_agent.wiring.memory`."),
    Root(
        EvalConfig,
        "An evaluation",
        "In code, `rubricem_agent.wiring.eval_config`; the options of `rubricem eval run` are the same.",
    ),
)


def render() -> str:
    """The whole page."""
    parts, shown = [INTRODUCTION], set()
    for root in ROOTS:
        parts.append(f"## {root.title}\n\n{root.where}\n\n{section(root.model)}")
        shown.add(root.model)
    parts.append("## Groups of keys\n\nThese are the nested settings, each under the name of its class.\n")
    for model in groups([root.model for root in ROOTS]):
        if model not in shown:
            parts.append(f"### {model.__name__.removeprefix('_')}\n\n{section(model)}")
    return "\n".join(part.rstrip() + "\n" for part in parts)


def groups(models: list[type[BaseModel]]) -> list[type[BaseModel]]:
    """Every model inside these, each once, in order of appearance."""
    nested: dict[type[BaseModel], None] = {}
    for model in models:
        for field in model.model_fields.values():
            for inner in models_in(field.annotation):
                if inner not in nested:
                    nested[inner] = None
                    nested.update(dict.fromkeys(groups([inner])))
    return list(nested)


def section(model: type[BaseModel]) -> str:
    """The docstring of a model, and a row for each key."""
    meanings = field_docs(model)
    rows = []
    for name, field in model.model_fields.items():
        meaning = meanings.get(name) or field.description or ""
        rows.append(f"| `{name}` | {kind_of(field.annotation, field)} | {default_of(field)} | {meaning} |")
    summary = inspect.cleandoc(model.__doc__ or "").replace("\n", " ")
    return "\n".join([summary, "", "| key | value | default | meaning |", "|---|---|---|---|", *rows, ""])


def field_docs(model: type[BaseModel]) -> dict[str, str]:
    """The strings under the fields, those of base classes included."""
    meanings: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if base is not BaseModel and issubclass(base, BaseModel):
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
            for before, after in zip(tree.body, tree.body[1:], strict=False):
                if (
                    isinstance(before, ast.AnnAssign)
                    and isinstance(after, ast.Expr)
                    and isinstance(after.value, ast.Constant)
                ):
                    meanings[before.target.id] = " ".join(str(after.value.value).split()).replace("|", "\\|")
    return meanings


def kind_of(kind: Any, field: FieldInfo | None = None) -> str:
    """The type of a value, in words."""
    origin = get_origin(kind)
    if origin is Annotated:
        inner, *notes = get_args(kind)
        limits = [limit for note in notes for limit in (note.metadata if isinstance(note, FieldInfo) else [note])]
        return f"{kind_of(inner)}{bounds(limits)}"
    if origin in (Union, UnionType):
        named = [kind_of(part) for part in get_args(kind) if part is not NoneType]
        return " or ".join([*named, *(["none"] if NoneType in get_args(kind) else [])])
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(kind))
    if origin is tuple:
        inner = [part for part in get_args(kind) if part is not Ellipsis]
        is_list = Ellipsis in get_args(kind)
        return f"list of {kind_of(inner[0])}" if is_list else f"[{', '.join(kind_of(part) for part in inner)}]"
    if origin is Mapping:
        key, value = get_args(kind)
        return f"{kind_of(value)} by {kind_of(key)}"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(f"`{choice.value}`" for choice in kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        name = kind.__name__.removeprefix("_")
        heading = next((root.title for root in ROOTS if root.model is kind), name)
        return f"[{name}](#{heading.lower().replace(' ', '-')})"
    named = {
        int: "integer",
        float: "number",
        str: "text",
        bool: "true or false",
        Path: "path",
        Self: "settings like these",
    }.get(kind, str(kind))
    return f"{named}{bounds(field.metadata) if field else ''}"


def bounds(limits: list[Any]) -> str:
    """The range, in words."""
    signs = (("ge", "from"), ("gt", "above"), ("le", "to"), ("lt", "below"))
    ranges = [
        f" {word} {value:g}"
        for limit in limits
        for name, word in signs
        if (value := getattr(limit, name, None)) is not None
    ]
    return "".join(ranges)


def models_in(kind: Any) -> Iterator[type[BaseModel]]:
    """The settings inside a type."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for part in get_args(kind):
        yield from models_in(part)


def default_of(field: FieldInfo) -> str:
    """The default; of a group of keys only what differs from the group's own."""
    if field.is_required():
        return "**required**"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        own = type(value).model_fields
        changed = {
            name: set_to for name, set_to in value if own[name].is_required() or set_to != own[name].get_default()
        }
        return ", ".join(f"`{name}` {written(set_to)}" for name, set_to in changed.items()) or "its own"
    return written(value)


def written(value: object) -> str:
    """A value as a config writes it."""
    if value is None:
        return "none"
    if isinstance(value, BaseModel):
        return "its own"
    if isinstance(value, Enum):
        return f"`{value.value}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`[{', '.join(written(part).strip('`') for part in value)}]`"
    return f"`{value}`" if value != "" else '`""`'


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
