"""LoRA for SFT and the local trainer: low-rank updates beside frozen linear layers, saved in peft's format, and merged.

    python -m rubricem_trainers.lora ADAPTER OUT [--base MODEL]     writes the merged model, which any program loads

The update of a layer is alpha / rank * B A, with B zero at first, so that a run begins with the model as it is. peft
and vLLM load the saved adapter.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoTokenizer, PreTrainedModel

from rubricem_agent.policy.base import model_folder
from rubricem_agent.policy.local import load_model
from rubricem_env.domain.errors import ConfigError, ModelError, boundary
from rubricem_env.domain.settings import Settings
from rubricem_records.files.atomic_files import write_atomic

from .settings import run_command

CONFIG_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
"""Before every name in peft's files."""


class LoraSettings(Settings):
    """Which layers get an update, and how large it is."""

    rank: Annotated[int, Field(ge=1)] = 16
    alpha: Annotated[float, Field(gt=0)] = 32.0
    """The update is scaled by alpha / rank."""
    targets: tuple[str, ...] = ()
    """Ends of the names of linear layers, such as `q_proj`; none for all linear layers except the head."""


class LoraLinear(nn.Module):
    """A frozen linear layer and its update."""

    def __init__(self, base: nn.Linear, settings: LoraSettings) -> None:
        super().__init__()
        self.base_layer = base
        # float32 beside weights in bfloat16: small updates would be rounded away.
        like = {"device": base.weight.device, "dtype": torch.float32}
        self.lora_A = nn.Linear(base.in_features, settings.rank, bias=False, **like)
        self.lora_B = nn.Linear(settings.rank, base.out_features, bias=False, **like)
        nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))
        nn.init.zeros_(self.lora_B.weight)
        self.scale = settings.alpha / settings.rank
        self.is_on = True

    def forward(self, hidden: Tensor) -> Tensor:
        out: Tensor = self.base_layer(hidden)
        if not self.is_on:
            return out
        update = self.lora_B(self.lora_A(hidden.to(self.lora_A.weight.dtype)))
        summed: Tensor = out + (self.scale * update).to(out.dtype)
        return summed


def add_lora(model: PreTrainedModel, settings: LoraSettings) -> None:
    """Freeze the model and put an update beside each target, drawn from torch's generator.

    Raises:
        ConfigError: a target names no linear layer.
    """
    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    linear = {
        name: module for name, module in model.named_modules() if isinstance(module, nn.Linear) and module is not head
    }
    for target in settings.targets:
        if not any(_is_named(name, target) for name in linear):
            known = sorted({name.rpartition(".")[2] for name in linear})
            raise ConfigError(f"lora.targets names {target!r}, and the model's linear layers are {', '.join(known)}.")
    if not linear:
        raise ConfigError(f"{type(model).__name__} has no linear layers for lora; train it whole, without lora.")
    model.requires_grad_(False)
    for name, layer in linear.items():
        if not settings.targets or any(_is_named(name, target) for target in settings.targets):
            model.set_submodule(name, LoraLinear(layer, settings))


def lora_layers(model: nn.Module) -> dict[str, LoraLinear]:
    """The layers with an update, by name; none for a model that is trained whole."""
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, LoraLinear)}


@contextmanager
def without_lora(model: nn.Module) -> Iterator[None]:
    """The model as it was before training."""
    layers = lora_layers(model).values()
    for layer in layers:
        layer.is_on = False
    try:
        yield
    finally:
        for layer in layers:
            layer.is_on = True


def save_adapter(model: PreTrainedModel, folder: Path, *, base: str, settings: LoraSettings) -> None:
    """Write the updates as peft does.

    `base` is the folder or the hub's name of the model beside which they were learnt.
    """
    layers = lora_layers(model)
    tensors = {
        f"{_PREFIX}{name}.{part}.weight": getattr(layer, part).weight.detach().contiguous().cpu()
        for name, layer in layers.items()
        for part in ("lora_A", "lora_B")
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, str(folder / WEIGHTS_FILE), metadata={"format": "pt"})
    described = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": settings.rank,
        "lora_alpha": settings.alpha,
        "target_modules": sorted(layers),
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
    }
    write_atomic(folder / CONFIG_FILE, (json.dumps(described, indent=1) + "\n").encode())


def merge_adapter(adapter: Path, out: Path, *, base: str = "") -> None:
    """Write the base model with the updates added to its weights.

    Raises:
        ConfigError: the folder holds no adapter of ours, or its base is not on this machine.
        ModelError: the base is another model, or a file is damaged.
    """
    described = _read_adapter(adapter)
    source = model_folder(Path(base or described["base_model_name_or_path"]))
    if not source.is_dir():
        raise ConfigError(f"the adapter's base {source} is no folder on this machine. Give it with --base FOLDER.")
    model = load_model(source)
    scale = described["lora_alpha"] / described["r"]
    with boundary(ModelError, f"merge the adapter in {adapter}"), torch.no_grad():
        tensors = load_file(str(adapter / WEIGHTS_FILE))
        for name in (name for name in tensors if name.endswith(".lora_A.weight")):
            layer: Any = model.get_submodule(name.removeprefix(_PREFIX).removesuffix(".lora_A.weight"))
            down, up = (tensors[name.replace("lora_A", part)].to(layer.weight.device) for part in ("lora_A", "lora_B"))
            layer.weight.copy_(layer.weight.float() + scale * (up.float() @ down.float()))
    model.save_pretrained(out)
    AutoTokenizer.from_pretrained(source, local_files_only=True).save_pretrained(out)


def _read_adapter(folder: Path) -> dict[str, Any]:
    try:
        described: dict[str, Any] = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
        kinds = described["peft_type"], bool(described.get("use_rslora")), bool(described.get("use_dora"))
        if kinds != ("LORA", False, False) or not {"r", "lora_alpha", "base_model_name_or_path"} <= set(described):
            raise ValueError("it describes another kind of adapter than plain LoRA")
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise ConfigError(f"{folder} holds no LoRA adapter: {cause}. Give the folder that training wrote.") from cause
    return described


def _is_named(name: str, target: str) -> bool:
    return name == target or name.endswith(f".{target}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Merge. Returns 2, with one sentence on stderr, for a mistake."""
    parser = argparse.ArgumentParser(
        prog="python -m rubricem_trainers.lora", description="Merge a LoRA adapter into its model."
    )
    parser.add_argument("adapter", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--base", default="", help="the folder of the base model, where the adapter names another place"
    )
    chosen = parser.parse_args(arguments)
    code = run_command("lora", lambda: merge_adapter(chosen.adapter, chosen.out, base=chosen.base))
    if not code:
        sys.stdout.write(f"model: {chosen.out}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
