"""What any trainer saves of a model: weights, optimiser moments and random state, as parts of a checkpoint.

Tensors are in safetensors files and all else in JSON: nothing is unpickled.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import nn

from rubricem_agent.learn.checkpoint import Checkpoint, CheckpointItem, json_part
from rubricem_agent.learn.resume_identity import refuse_other_run


def learning_parts(
    step: int, *, model: nn.Module, optimizer: torch.optim.Optimizer, identity: str
) -> dict[str, CheckpointItem]:
    """The parts of a checkpoint that any trainer has; others may stand beside them."""
    moments, counts = _optimizer_tensors(model, optimizer)
    progress = {"identity": identity, "torch_rng": torch.get_rng_state().tolist(), "counts": counts}
    return {
        "weights": ("weights.safetensors", lambda path: _write_weights(model, path), step),
        "moments": ("moments.safetensors", disk_refusals()(lambda path: save_file(moments, str(path))), step),
        "progress": json_part(progress, file="progress.json", step=step),
    }


@contextmanager
def disk_refusals() -> Iterator[None]:
    """Turn safetensors' error for a full disk into an `OSError`."""
    try:
        yield
    except SafetensorError as cause:
        raise OSError(str(cause)) from cause


def restore(checkpoint: Checkpoint, *, model: nn.Module, optimizer: torch.optim.Optimizer, identity: str) -> int:
    """Load a checkpoint into the model and the optimiser; returns its step.

    Raises:
        UsageError: it belongs to a run with other settings or samples.
    """
    progress = checkpoint.read_json("progress")
    refuse_other_run(checkpoint.folder, progress["identity"], identity)
    with disk_refusals():
        _read_weights(model, checkpoint.path("weights"))
        moments = load_file(str(checkpoint.path("moments")))
    for name, parameter in model.named_parameters():
        if f"{name}.exp_avg" in moments:
            optimizer.state[parameter] = {
                "step": torch.tensor(float(progress["counts"][name])),
                "exp_avg": moments[f"{name}.exp_avg"].reshape(parameter.shape).to(parameter.device),
                "exp_avg_sq": moments[f"{name}.exp_avg_sq"].reshape(parameter.shape).to(parameter.device),
            }
    torch.set_rng_state(torch.tensor(progress["torch_rng"], dtype=torch.uint8))
    return checkpoint.step


def _write_weights(model: nn.Module, path: Path) -> None:
    """The whole model; only what is trained of one with frozen weights."""
    with disk_refusals():
        if _is_whole(model):
            save_model(model, str(path))
        else:
            trained = {
                name: parameter.detach().contiguous()
                for name, parameter in model.named_parameters()
                if parameter.requires_grad
            }
            save_file(trained, str(path))


def _read_weights(model: nn.Module, path: Path) -> None:
    if _is_whole(model):
        load_model(model, str(path))
    else:
        model.load_state_dict(load_file(str(path)), strict=False)


def _is_whole(model: nn.Module) -> bool:
    return all(parameter.requires_grad for parameter in model.parameters())


def _optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[dict[str, Any], dict[str, float]]:
    """AdamW's two moments by parameter name, and how often each parameter was updated."""
    moments: dict[str, Any] = {}
    counts: dict[str, float] = {}
    for name, parameter in model.named_parameters():
        state = optimizer.state.get(parameter)
        if state:
            moments[f"{name}.exp_avg"] = state["exp_avg"].contiguous()
            moments[f"{name}.exp_avg_sq"] = state["exp_avg_sq"].contiguous()
            counts[name] = float(state["step"])
    return moments, counts
