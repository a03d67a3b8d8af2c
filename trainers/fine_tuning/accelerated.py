"""Many processes through accelerate: DeepSpeed ZeRO-3 or FSDP, as the launch file says.

Checkpoints are accelerate's own.
"""

from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rubricem_agent.learn.resume_identity import refuse_other_run
from rubricem_agent.wiring.models import requires_extra

from .settings import Precision
from .sft import OneProcess

IDENTITY = "identity.txt"


class Accelerated(OneProcess):
    """This process as one of those that `accelerate launch` has started.

    Every backward pass synchronises: rows differ in length, and gradients are summed as they come.
    """

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator
        self.device = accelerator.device
        self.rank = accelerator.process_index
        self.num_processes = accelerator.num_processes

    @classmethod
    def here(cls, precision: Precision) -> "Accelerated":
        with requires_extra("cluster", "training in several processes"):
            accelerate: Any = import_module("accelerate")
        return cls(accelerate.Accelerator(mixed_precision="bf16" if precision == "bf16" else "no"))

    def prepare(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        prepared: tuple[nn.Module, torch.optim.Optimizer] = self._accelerator.prepare(model, optimizer)
        return prepared

    def computing(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self._accelerator.autocast()
        return context

    def backward(self, loss: Tensor, *, is_last: bool) -> None:
        # DeepSpeed updates the weights inside the backward pass that is marked so; the others only sum up.
        self._accelerator.sync_gradients = is_last or self._accelerator.distributed_type != "DEEPSPEED"
        self._accelerator.backward(loss)

    def clip(self, model: nn.Module, max_norm: float) -> float:
        """Under DeepSpeed its own file clips, before this: only the norm is read."""
        norm = self._accelerator.clip_grad_norm_(model.parameters(), max_norm)
        return float(norm) if norm is not None else 0.0

    def total(self, number: float) -> float:
        return float(self._accelerator.reduce(torch.tensor(number, device=self.device), reduction="sum"))

    def save_checkpoint(
        self, root: Path, step: int, *, model: nn.Module, optimizer: torch.optim.Optimizer, identity: str
    ) -> None:
        folder = root / f"accelerate-{step:06d}"
        self._accelerator.save_state(str(folder))
        self._accelerator.wait_for_everyone()
        if self.rank == 0:
            # Written last: a folder without it is half a checkpoint.
            (folder / IDENTITY).write_text(identity, encoding="utf-8")

    def restore(self, root: Path, *, model: nn.Module, optimizer: torch.optim.Optimizer, identity: str) -> int:
        whole = sorted(path.parent for path in root.glob(f"accelerate-*/{IDENTITY}"))
        if not whole:
            return 0
        refuse_other_run(whole[-1], (whole[-1] / IDENTITY).read_text(encoding="utf-8"), identity)
        self._accelerator.load_state(str(whole[-1]))
        return int(whole[-1].name.rpartition("-")[2])

    def save(self, model: nn.Module, folder: Path) -> None:
        # Gathering takes every process, writing one.
        weights = self._accelerator.get_state_dict(model)
        if self.rank == 0:
            self._accelerator.unwrap_model(model).save_pretrained(folder, state_dict=weights)
