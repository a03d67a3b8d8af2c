"""The run's own log beside veRL's trackers: the metrics.jsonl and config.json that the local trainer writes as well."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rubricem_agent.learn.collapse import CollapseError, find_collapse
from rubricem_agent.learn.metrics_log import METRICS_FILE, append_line, read_log
from trainers.local.keeping import trim_log
from trainers.settings_file import make_out
from trainers.verl_backend.settings import VerlSettings


class VerlLog:
    """One run's log, in veRL's folder for checkpoints."""

    def __init__(self, folder: Path, settings: VerlSettings) -> None:
        self._path = folder / METRICS_FILE
        self._settings = settings

    def begin(self, step: int) -> None:
        """Forget what was written after `step`: a resumed run writes it again."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        trim_log(self._path, step)

    def leave_settings(self, config: Any) -> None:
        """Write the settings of this start beside the log.

        Raises:
            ConfigError: the folder cannot be written.
        """
        told = {**shared_settings(config), **self._settings.model_dump(mode="json")}
        make_out(self._path.parent, settings=json.dumps(told, indent=1), key="trainer.default_local_dir")

    def write(self, step: int, told: Mapping[str, Any]) -> None:
        """Write a step down.

        Raises:
            CollapseError: the run is lost; the alarm is written down as well.
        """
        append_line(self._path, {"step": step, **told})
        lost = find_collapse(read_log(self._path.parent).steps, self._settings.watch)
        if lost:
            append_line(self._path, {"step": step, "alarm": lost})
            raise CollapseError(lost)


def shared_settings(config: Any) -> dict[str, Any]:
    """What veRL has keys of its own for, under the names that the local trainer has for them."""
    parts = config.actor_rollout_ref
    return {
        "trainer": config.trainer.v1.trainer_mode,
        "policy": parts.model.path,
        "steps": config.trainer.total_training_steps,
        "questions_per_step": config.data.train_batch_size,
        "group_size": parts.rollout.n,
        "learning_rate": parts.actor.optim.lr,
        "temperature": parts.rollout.temperature,
        "kl_loss_coef": parts.actor.kl_loss_coef if parts.actor.use_kl_loss else 0.0,
        "checkpoint_every": config.trainer.save_freq,
    }


def update_told(
    metrics: Mapping[str, Any], stages: Mapping[str, Any] | None, *, prefix: str = ""
) -> dict[str, Any] | None:
    """One of a step's two updates from veRL's metrics; None where it did not take place."""
    norm = metrics.get(f"{prefix}actor/grad_norm")
    if norm is None:
        return None
    found = stages or {}
    return {
        "loss": float(metrics.get(f"{prefix}actor/loss", metrics.get(f"{prefix}actor/pg_loss", 0.0))),
        "grad_norm": float(norm),
        "tokens": sum(int(stage["tokens"]) for stage in found.values()),
        "stages": dict(found),
    }
