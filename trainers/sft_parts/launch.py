"""Where a run computes: one process on a CPU or a GPU. `accelerated.py` has the same for many."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rubricem_agent.learn.checkpoint import latest_checkpoint, save_checkpoint

from .checkpoint import learning_parts, restore
from .settings import Precision


class OneProcess:
    """This process, on the GPU if there is one; the base of a run on many processes."""

    rank = 0
    num_processes = 1

    def __init__(self, precision: Precision, device: torch.device) -> None:
        self.device = device
        self._precision = precision

    @classmethod
    def here(cls, precision: Precision) -> "OneProcess":
        return cls(precision, torch.device("cuda" if torch.cuda.is_available() else "cpu"))

    def prepare(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Move both to where they compute, and shard them where the processes share a model."""
        return model.to(self.device), optimizer

    def computing(self) -> AbstractContextManager[Any]:
        """The context of a forward pass: the precision."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self._precision == "bf16")

    def backward(self, loss: Tensor, *, is_last: bool) -> None:
        """Add the gradient of a row; `is_last` on the last row of a step."""
        loss.backward()  # type: ignore[no-untyped-call]

    def clip(self, model: nn.Module, max_norm: float) -> float:
        """Scale the gradient down to the norm if it is longer; returns the norm before."""
        return float(nn.utils.clip_grad_norm_(model.parameters(), max_norm))

    def total(self, number: float) -> float:
        """The sum over all processes."""
        return number

    def save_checkpoint(
        self, root: Path, step: int, *, model: nn.Module, optimizer: torch.optim.Optimizer, identity: str
    ) -> None:
        """Write the checkpoint of a step; `identity` says which run it belongs to."""
        parts = learning_parts(step, model=model, optimizer=optimizer, identity=identity)
        save_checkpoint(root, step=step, parts=parts)

    def restore(self, root: Path, *, model: nn.Module, optimizer: torch.optim.Optimizer, identity: str) -> int:
        """Load the latest checkpoint; returns its step, 0 where there is none."""
        checkpoint = latest_checkpoint(root)
        if checkpoint is None:
            return 0
        with checkpoint.restoring():
            return restore(checkpoint, model=model, optimizer=optimizer, identity=identity)

    def save(self, model: nn.Module, folder: Path) -> None:
        """Write the model as transformers loads it. Every process calls this."""
        trained: Any = model
        trained.save_pretrained(folder)
