"""The settings of a fine-tuning run."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from rubricem_env.domain.base import Frozen

Count = Annotated[int, Field(ge=1)]
Precision = Literal["bf16", "fp32"]


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
    precision: Precision = "bf16"
    """bf16 keeps the weights in float32 and computes in bfloat16 where that is safe."""
    packing: bool = True
    """Fill each row with several samples, which do not see each other. Changes the speed, not the gradient."""
    seed: int = 0
    checkpoint_every: Count = 100
    """Steps. The last step is always kept."""
    stop_after: Count | None = None
    """Stop, with a checkpoint, after this many steps of the whole run; the schedule is that of the whole run."""
