"""Checkpoints of a local run: what a stopped run resumes from, with the settings that it must share.

A checkpoint holds weights, moments, curriculum, rubrics, bank and deferred work under one manifest.
"""

from collections.abc import Mapping
from typing import Any

from rubricem_agent.config import ToolsConfig
from rubricem_agent.learn.checkpoint import json_part, latest_checkpoint, save_checkpoint
from rubricem_agent.memory.snapshot import load_snapshot, save_snapshot
from rubricem_env.domain.errors import UsageError

from ..model_checkpoint import learning_parts, restore
from .run import Run
from .settings import LocalConfig


def save_run(run: Run, step: int) -> None:
    """Write the checkpoint of a step."""
    root = run.config.out / "checkpoints"
    states = {
        "curriculum": run.curriculum.state_dict(),
        "judge": run.judge.state_dict(),
        "deferred": run.deferred.state_dict(),
        "learner": {"updates": run.learner.updates},
    }
    if run.audit is not None:
        states["audit"] = run.audit.state_dict()
    items = {name: json_part(state, file=f"{name}.json", step=step) for name, state in states.items()}
    items["bank"] = ("bank.npz", lambda path: save_snapshot(run.bank, path, step=step), step)
    learner = run.learner
    items |= learning_parts(step, model=learner.policy, optimizer=learner.optimizer, identity=_identity(run.config))
    save_checkpoint(root, step=step, parts=items, prompts=run.prompt_hashes)


def resume_run(run: Run) -> int:
    """Load the latest checkpoint, if there is one; returns its step, or 0.

    Raises:
        UsageError: it is damaged, or belongs to a run with other settings.
    """
    checkpoint = latest_checkpoint(run.config.out / "checkpoints")
    if checkpoint is None:
        return 0
    checkpoint.refuse_other_prompts(run.prompt_hashes)
    learner = run.learner
    with checkpoint.restoring():
        restore(checkpoint, model=learner.policy, optimizer=learner.optimizer, identity=_identity(run.config))
        curriculum = checkpoint.read_json("curriculum")
        updates = checkpoint.read_json("learner")["updates"]
        if curriculum["step"] != checkpoint.step or type(updates) is not int or updates < 0:
            raise UsageError(
                f"{checkpoint.folder} holds a curriculum of step {str(curriculum['step'])[:40]} and "
                f"{str(updates)[:40]} updates, which no run has saved at step {checkpoint.step}. Resume from another "
                "checkpoint."
            )
        run.curriculum.load_state_dict(curriculum)
        run.judge.load_state_dict(checkpoint.read_json("judge"))
        run.deferred.load_state_dict(checkpoint.read_json("deferred"))
        learner.updates = updates
        if run.audit is not None and "audit" in checkpoint.parts:
            run.audit.load_state_dict(checkpoint.read_json("audit"))
        load_snapshot(run.bank, checkpoint.path("bank"), step=checkpoint.step)
    return checkpoint.step


_CHANGEABLE: Mapping[str, Any] = {
    **dict.fromkeys(("steps", "out", "evaluate_every", "checkpoint_every", "prompts"), True),
    "judge": {"rates", "ceilings", "timeout", "hedge_after", "prompts"},
    "tools": ToolsConfig.model_fields.keys() - {"backend", "corpus"},
}
"""What a resumed run may have otherwise: its length and folder, how often it saves or evaluates, limits and engines,
and where its prompts lie, whose hashes are compared.
"""


def _identity(config: LocalConfig) -> str:
    """The settings that a resumed run must share."""
    return config.model_dump_json(exclude=dict(_CHANGEABLE))
