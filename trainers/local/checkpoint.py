"""Checkpoints of a local run: weights, moments, curriculum, rubrics, bank and deferred work under one manifest."""

import json
from collections.abc import Mapping
from typing import Any

from transformers import AutoTokenizer

from rubricem_agent.config import ToolsConfig
from rubricem_agent.learn.checkpoint import json_part, latest_checkpoint, save_checkpoint
from rubricem_agent.memory.snapshot import load_snapshot, save_snapshot
from rubricem_agent.policy.base import SYSTEM_FILE, model_folder
from rubricem_env.domain.errors import UsageError

from ..lora import merge_adapter, save_adapter
from ..sft_parts.checkpoint import disk_refusals, learning_parts, restore
from .settings import LocalConfig
from .setup import Parts


def save_run(parts: Parts, step: int) -> None:
    """Write the checkpoint of a step."""
    root = parts.config.out / "checkpoints"
    states = {
        "curriculum": parts.curriculum.state_dict(),
        "judge": parts.judge.state_dict(),
        "deferred": parts.deferred.state_dict(),
        "learner": {"updates": parts.learner.updates},
    }
    if parts.audit is not None:
        states["audit"] = parts.audit.state_dict()
    items = {name: json_part(state, file=f"{name}.json", step=step) for name, state in states.items()}
    items["bank"] = ("bank.npz", lambda path: save_snapshot(parts.bank, path, step=step), step)
    learner = parts.learner
    items |= learning_parts(step, model=learner.policy, optimizer=learner.optimizer, identity=_identity(parts.config))
    save_checkpoint(root, step=step, parts=items)


def resume_run(parts: Parts) -> int:
    """Load the latest checkpoint, if there is one; returns its step, or 0.

    Raises:
        UsageError: it is damaged, or belongs to a run with other settings.
    """
    checkpoint = latest_checkpoint(parts.config.out / "checkpoints")
    if checkpoint is None:
        return 0
    learner = parts.learner
    with checkpoint.restoring():
        saved, identity = checkpoint.read_json("progress")["identity"], _identity(parts.config)
        identity = saved if _reread(saved, parts.config) == identity else identity
        restore(checkpoint, model=learner.policy, optimizer=learner.optimizer, identity=identity)
        curriculum, updates = checkpoint.read_json("curriculum"), checkpoint.read_json("learner")["updates"]
        if curriculum["step"] != checkpoint.step or type(updates) is not int or updates < 0:
            raise UsageError(
                f"{checkpoint.folder} holds a curriculum of step {str(curriculum['step'])[:40]} and {str(updates)[:40]} "
                f"updates, which no run has saved at step {checkpoint.step}. Resume from another checkpoint."
            )
        parts.curriculum.load_state_dict(curriculum)
        parts.judge.load_state_dict(checkpoint.read_json("judge"))
        parts.deferred.load_state_dict(checkpoint.read_json("deferred"))
        learner.updates = updates
        if parts.audit is not None and "audit" in checkpoint.parts:
            parts.audit.load_state_dict(checkpoint.read_json("audit"))
        load_snapshot(parts.bank, checkpoint.path("bank"), step=checkpoint.step)
    return checkpoint.step


def save_policy(parts: Parts) -> None:
    """Write the policy with its tokenizer as transformers loads it; with LoRA its updates too, in OUT/adapter.

    Raises:
        UsageError: the disk refuses.
    """
    config, model = parts.config, parts.learner.policy
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


_CHANGEABLE: Mapping[str, Any] = {
    **dict.fromkeys(("steps", "out", "evaluate_every", "checkpoint_every"), True),
    "judge": {"rates", "ceilings", "timeout"},
    "tools": ToolsConfig.model_fields.keys() - {"backend", "corpus"},
}
"""What a resumed run may have otherwise: its length and folder, how often it saves or evaluates, limits and engines."""


def _identity(config: LocalConfig) -> str:
    """The settings that a resumed run must share."""
    return config.model_dump_json(exclude=dict(_CHANGEABLE))


def _reread(saved: str, config: LocalConfig) -> str:
    """The identity that an earlier release wrote, with the settings that it did not have yet; or as it is."""
    try:
        fields = {**json.loads(saved), "out": config.out}
        return _identity(LocalConfig.model_validate(fields, strict=False))
    except ValueError:
        return saved
