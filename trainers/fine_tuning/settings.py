"""The settings of a fine-tuning run, its schedule as a function of the step alone, and its memory from shapes.

The memory is printed before the weights are read; a run that does not fit is refused.
"""

import math
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from transformers import AutoConfig, AutoModelForCausalLM

from rubricem_agent.policy.base import model_folder
from rubricem_env.domain.base import Frozen, PositiveCount
from rubricem_env.domain.errors import ConfigError

from ..lora import LoraSettings, add_lora

Precision = Literal["bf16", "fp32"]


class SftConfig(Frozen):
    """A fine-tuning run; the defaults are the paper's (appendix F.1.1)."""

    model: str
    """A folder or a name that transformers can load, with its tokenizer and chat template; `tiny` is the shipped
    policy.
    """
    samples: Path
    """ChatML with loss spans, as `rubricem data teach` writes it."""
    out: Path
    """Checkpoints, metrics.jsonl, and at the end the trained model in `model/`."""
    system: str | None = None
    """Train with this system prompt in place of the samples' own, which is long after `data teach`. The model's folder
    carries what it was trained with, and every command uses that.
    """
    epochs: PositiveCount = 5
    learning_rate: Annotated[float, Field(gt=0)] = 4e-5
    warmup_share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """The share of all steps in which the rate rises; after them it falls along a cosine to zero."""
    batch_size: PositiveCount = 128
    """Samples of one optimiser step, over all processes; gradients are accumulated over as many rows as they fill."""
    max_tokens: PositiveCount = 16_384
    """Longer samples are dropped and counted, never cut."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    precision: Precision = "bf16"
    """bf16 keeps the weights in float32 and computes in bfloat16 where that is safe."""
    packing: bool = True
    """Fill each row with several samples, which do not see each other. Changes the speed, not the gradient."""
    recompute: bool = True
    """Gradient checkpointing: keep the inputs of the layers and compute the rest again on the way back."""
    lora: LoraSettings | None = None
    """Train an adapter beside frozen weights, on one GPU; it is saved in `adapter/`, and merged into `model/`."""
    seed: int = 0
    checkpoint_every: PositiveCount = 100
    """The number of steps between two checkpoints. The last step is always saved."""
    stop_after: PositiveCount | None = None
    """Stop, with a checkpoint, after this many steps of the whole run; the schedule is that of the whole run."""


class SftSchedule(NamedTuple):
    """Samples and learning rate of each step of a run."""

    num_samples: int
    batch_size: int
    epochs: int
    seed: int
    learning_rate: float
    warmup_share: float

    @property
    def steps_per_epoch(self) -> int:
        """The last batch of an epoch may be smaller."""
        return -(-self.num_samples // self.batch_size)

    @property
    def num_steps(self) -> int:
        return self.epochs * self.steps_per_epoch

    def epoch_of(self, step: int) -> int:
        """From 0; steps count from 1."""
        return (step - 1) // self.steps_per_epoch

    def batch(self, step: int) -> list[int]:
        """The indices of the samples of a step; each epoch has its own permutation."""
        epoch = self.epoch_of(step)
        order = np.random.default_rng([self.seed, epoch]).permutation(self.num_samples)
        start = (step - 1) % self.steps_per_epoch * self.batch_size
        return [int(index) for index in order[start : start + self.batch_size]]

    def rate(self, step: int) -> float:
        """Linear warm-up to the learning rate, then a cosine that would be zero one step after the run."""
        warmup = round(self.num_steps * self.warmup_share)
        if step <= warmup:
            return self.learning_rate * step / warmup
        done = (step - warmup) / (self.num_steps - warmup + 1)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * done))


GIB = 2**30
_LAYER_BYTES = 250_000 / (4_096 + 12_288)
"""Saved for a backward pass, by token, layer and width (hidden and MLP together): 250 kB in bf16 measured for Qwen3-8B.
"""
_LOGIT_BYTES = 10
"""Of one logit: in bfloat16, in float32, and its gradient."""
_RESERVE = 5.0
"""GiB for the libraries' own buffers and for fragments."""


def plan_memory(config: SftConfig, *, processes: int) -> dict[str, float]:
    """GiB of each GPU by what uses it, in the longest row, all of whose tokens are learnt.

    Raises:
        ConfigError: there is no model of that name.
    """
    try:
        shape: Any = AutoConfig.from_pretrained(model_folder(Path(config.model)))
        with torch.device("meta"):
            model: Any = AutoModelForCausalLM.from_config(shape)  # type: ignore[no-untyped-call]
            if config.lora is not None:
                add_lora(model, config.lora)
    except (OSError, ValueError) as cause:
        said = str(cause).splitlines()[0]
        raise ConfigError(
            f"no model can be loaded from {config.model!r}: {said} Give its folder or hub name."
        ) from cause
    parameters = sum(parameter.numel() for parameter in model.parameters())
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    layers, hidden, tokens = shape.num_hidden_layers, shape.hidden_size, config.max_tokens
    layer = _LAYER_BYTES * (hidden + shape.intermediate_size) * (1 if config.precision == "bf16" else 2)
    # Recomputed: the input of each layer is kept in float32, and one layer at a time is whole.
    saved = 4 * hidden * layers + layer if config.recompute else layer * layers
    gathered = 2 * 2 * parameters / layers if processes > 1 else 0
    return {
        "weights": 4 * parameters / processes / GIB,
        "gradients and moments": 12 * trained / processes / GIB,
        "gathered layers": gathered / GIB,
        "activations": saved * tokens / GIB,
        "logits": _LOGIT_BYTES * shape.vocab_size * tokens / GIB,
        "reserve": _RESERVE,
    }


def describe_memory(plan: dict[str, float], *, gpu_gib: float | None) -> str:
    """One line for people; `gpu_gib` is the memory of a GPU, if there is one."""
    parts = ", ".join(f"{name} {gib:.1f}" for name, gib in plan.items())
    has = f" of {gpu_gib:.0f}" if gpu_gib else ""
    return f"memory of each process, estimated: {sum(plan.values()):.0f}{has} GiB ({parts})"


def refuse_small_gpu(plan: dict[str, float], config: SftConfig, *, gpu_gib: float, processes: int) -> None:
    """Raise ConfigError, with the ways out, where the plan needs more than a GPU has."""
    needed = sum(plan.values())
    if needed <= gpu_gib:
        return
    largest = max(plan, key=lambda name: plan[name])
    ways = [] if config.recompute else ["compute activations again (recompute=true)"]
    ways += [f"shorten the rows (max_tokens={config.max_tokens // 2})", f"take more than {processes} GPUs"]
    ways += [] if config.lora is not None or processes > 1 else ["train an adapter (lora={rank: 16})"]
    raise ConfigError(
        f"a GPU of {gpu_gib:.0f} GiB is too small: the run needs {needed:.0f}, {plan[largest]:.0f} of them for "
        f"{largest}. To make it fit: {', or '.join(ways)}."
    )
