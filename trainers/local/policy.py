"""The policy that a local run trains: loaded at its start, written at its end."""

import torch
from transformers import AutoTokenizer, PreTrainedModel

from rubricem_agent.policy.base import SYSTEM_FILE, model_folder
from rubricem_agent.policy.local import load_model
from rubricem_env.domain.errors import UsageError

from ..lora import add_lora, merge_adapter, save_adapter
from ..model_checkpoint import disk_refusals
from .settings import LocalConfig


def load_trained(config: LocalConfig) -> PreTrainedModel:
    """The model that is trained: in float32, or with updates in float32 beside its weights as they are saved."""
    model = load_model(config.policy)
    if config.lora is None:
        model.to(dtype=torch.float32)  # type: ignore[call-arg]
    else:
        torch.manual_seed(config.seed)
        add_lora(model, config.lora)
    return model


def save_policy(model: PreTrainedModel, config: LocalConfig) -> None:
    """Write the policy with its tokenizer as transformers loads it; with LoRA its updates too, in OUT/adapter.

    Raises:
        UsageError: the disk refuses.
    """
    folder, source = config.out / "model", model_folder(config.policy)
    try:
        with disk_refusals():
            if config.lora is None:
                model.save_pretrained(folder)
                AutoTokenizer.from_pretrained(source, local_files_only=True).save_pretrained(folder)
            else:
                save_adapter(model, config.out / "adapter", base=str(source.resolve()), settings=config.lora)
                merge_adapter(config.out / "adapter", folder)
            if config.system:
                (folder / SYSTEM_FILE).write_text(config.system + "\n", encoding="utf-8")
    except OSError as cause:
        raise UsageError(
            f"cannot write the policy to {folder}: {cause.strerror or cause}. "
            "The last checkpoint is whole; make room, and the same command writes the policy."
        ) from cause
