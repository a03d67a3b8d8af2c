"""The settings of a fine-tuning run, and how they are read from a YAML file and from KEY=VALUE arguments."""

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml  # type: ignore[import-untyped]
from pydantic import Field, ValidationError

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.trajectory_json import first_problem

Settings = TypeVar("Settings", bound=Frozen)
Count = Annotated[int, Field(ge=1)]


class SftConfig(Frozen):
    """A fine-tuning run; the defaults are the paper's (section E.1)."""

    model: str
    """A folder or a name that transformers can load, with its tokenizer and chat template."""
    samples: Path
    """ChatML with loss spans, as `rubricem data teach` writes it."""
    out: Path
    """Checkpoints, metrics.jsonl, and at the end the trained model in `model/`."""
    epochs: Count = 5
    learning_rate: Annotated[float, Field(gt=0)] = 4e-5
    warmup_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Of all steps; then the rate falls along a cosine to zero."""
    batch_size: Count = 128
    """Samples of one optimiser step, over all processes; gradients are accumulated over as many rows as they fill."""
    max_tokens: Count = 16_384
    """Longer samples are dropped and counted, never cut (choice A14)."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    precision: Literal["bf16", "fp32"] = "bf16"
    """bf16 keeps the weights in float32 and computes in bfloat16 where that is safe."""
    packing: bool = True
    """Fill each row with several samples, which do not see each other. Changes the speed, not the gradient."""
    seed: int = 0
    checkpoint_every: Count = 100
    """Steps. The last step is always kept."""
    stop_after: Count | None = None
    """Stop, with a checkpoint, after this many steps of the whole run; the schedule is that of the whole run."""


def read_settings(path: Path, kind: type[Settings], *, changes: Iterable[str] = ()) -> Settings:
    """The settings of a YAML file, with `key=value` changes on top.

    Raises:
        ConfigError: the file or a change cannot be read, a key is unknown, or a value is out of range.
    """
    try:
        fields: Any = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as cause:
        raise ConfigError(f"cannot read the config {path}: {cause}. Give the path of a YAML file.") from cause
    if not isinstance(fields, dict):
        raise ConfigError(f"{path} holds a YAML {type(fields).__name__}; a config is a mapping of keys to values.")
    fields |= dict(_read_change(change) for change in changes)
    for key in fields:
        if key not in kind.model_fields:
            raise ConfigError(f"{path} has the key {key!r}, which is none; {_suggest(str(key), kind)}.")
    try:
        # Not strict: YAML has strings for paths, and reads 4e-5 as text.
        return kind.model_validate(fields, strict=False)
    except ValidationError as cause:
        raise ConfigError(f"the config {path} is refused {first_problem(cause)}") from cause


def _read_change(change: str) -> tuple[str, Any]:
    key, sign, value = change.partition("=")
    if not sign:
        raise ConfigError(f"{change!r} changes no setting; write KEY=VALUE, such as epochs=1.")
    return key.strip(), yaml.safe_load(value)


def _suggest(key: str, kind: type[Frozen]) -> str:
    near = difflib.get_close_matches(key, kind.model_fields, n=1)
    return f"did you mean {near[0]!r}" if near else f"the keys are {', '.join(kind.model_fields)}"
