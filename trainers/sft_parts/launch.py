"""Where a run computes: one process on a CPU or a GPU. `accelerated.py` has the same for many."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rubricem_agent.learn.checkpoint import checkpoint_steps, find_checkpoint, load_checkpoint
from trainers.sft_parts.checkpoint import restore, save_training
from trainers.sft_parts.settings import Precision


class TrainingDevice(Protocol):
    """What the training loop asks of its surroundings."""

    @property
    def device(self) -> torch.device: ...
    @property
    def rank(self) -> int: ...
    @property
    def num_processes(self) -> int: ...
    def prepare(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Move both to where they compute, and shard them if that is the place's way."""
        ...

    def computing(self) -> AbstractContextManager[None]:
        """The context of a forward pass: the precision."""
        ...

    def backward(self, loss: Tensor, *, is_last: bool) -> None:
        """Add the gradient of a row; `is_last` on the last row of a step."""
        ...

    def clip(self, model: nn.Module, max_norm: float) -> float:
        """Scale the gradient down to the norm if it is longer; returns the norm before."""
        ...

    def total(self, number: float) -> float:
        """The sum over all processes."""
        ...

    def save_checkpoint(
        self, root: Path, step: int, *, model: nn.Module, optimizer: torch.optim.Optimizer, identity: str
    ) -> None:
        """Write a checkpoint."""
        ...

    def restore(self, root: Path, *, model: nn.Module, optimizer: torch.optim.Optimizer, identity: str) -> int:
        """Load the latest checkpoint; returns its step, 0 where there is none."""
        ...

    def save(self, model: nn.Module, folder: Path) -> None:
        """Write the model as transformers loads it. Every process calls this."""
        ...


class OneProcess:
    """This process, on the GPU if there is one."""

    rank = 0
    num_processes = 1

    def __init__(self, precision: Precision, device: torch.device) -> None:
        self.device = device
        self._precision = precision

    @classmethod
    def here(cls, precision: Precision) -> "OneProcess":
        return cls(precision, torch.device("cuda" if torch.cuda.is_available() else "cpu"))

    def prepare(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        return model.to(self.device), optimizer

    @contextmanager
    def computing(self) -> Iterator[None]:
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self._precision == "bf16"):
            yield

    def backward(self, loss: Tensor, *, is_last: bool) -> None:
        loss.backward()  # type: ignore[no-untyped-call]

    def clip(self, model: nn.Module, max_norm: float) -> float:
        return float(nn.utils.clip_grad_norm_(model.parameters(), max_norm))

    def total(self, number: float) -> float:
        return number

    def save_checkpoint(
        self, root: Path, step: int, *, model: nn.Module, optimizer: torch.optim.Optimizer, identity: str
    ) -> None:
        save_training(root, step, model=model, optimizer=optimizer, identity=identity)

    def restore(self, root: Path, *, model: nn.Module, optimizer: torch.optim.Optimizer, identity: str) -> int:
        if not checkpoint_steps(root):
            return 0
        checkpoint = load_checkpoint(find_checkpoint(root))
        return restore(checkpoint, model=model, optimizer=optimizer, identity=identity)

    def save(self, model: nn.Module, folder: Path) -> None:
        trained: Any = model
        trained.save_pretrained(folder)
