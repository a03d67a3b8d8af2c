"""What a run on veRL writes: metrics.jsonl and config.json as in the local trainer, and metrics for trackers."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rubricem_agent.learn.stage_metrics import report_by_stage
from rubricem_env.domain.base import STAGES
from rubricem_records.rollouts.rollout_tokens import NO_STAGE

from ..settings import make_out
from .settings import VerlSettings


def write_settings(folder: Path, settings: VerlSettings, config: Any) -> None:
    """Write the settings of this start beside the log; veRL's own keys under the names that the local trainer has."""
    model = config.actor_rollout_ref
    shared = {
        "trainer": config.trainer.v1.trainer_mode,
        "policy": model.model.path,
        "steps": config.trainer.total_training_steps,
        "questions_per_step": config.data.train_batch_size,
        "group_size": model.rollout.n,
        "learning_rate": model.actor.optim.lr,
        "temperature": model.rollout.temperature,
        "kl_loss_coef": model.actor.kl_loss_coef if model.actor.use_kl_loss else 0.0,
        "checkpoint_every": config.trainer.save_freq,
    }
    text = json.dumps({**shared, **settings.model_dump(mode="json")}, indent=1)
    make_out(folder, settings=text, key="trainer.default_local_dir")


def update_metrics(
    metrics: Mapping[str, Any], stages: Mapping[str, Any] | None, *, prefix: str = ""
) -> dict[str, Any] | None:
    """One of a step's two updates, from veRL's metrics; None where it did not take place."""
    norm = metrics.get(f"{prefix}actor/grad_norm")
    if norm is None:
        return None
    return {
        "loss": float(metrics.get(f"{prefix}actor/loss", metrics.get(f"{prefix}actor/pg_loss", 0.0))),
        "grad_norm": float(norm),
        "tokens": sum(int(stage["tokens"]) for stage in (stages or {}).values()),
        # None in bypass mode, which compares the policy with the sampled tokens in the loss itself.
        "rollout_kl": metrics.get(f"{prefix}rollout_corr/kl"),
        "capped": metrics.get(f"{prefix}rollout_corr/rollout_is_ratio_fraction_high"),
        "stages": dict(stages or {}),
    }


def stage_means(
    stages: npt.NDArray[np.integer],
    advantages: np.ndarray,
    *,
    entropy: np.ndarray,
    kl: np.ndarray,
    names: Sequence[str] = STAGES,
) -> dict[str, dict[str, float]]:
    """Tokens, entropy, KL and share of the advantages' weight, for each stage that has tokens; arrays are (tokens,).

    `names` are all stages, in order. `kl` is from the reference, by the loss's own estimator; zeros without a
    reference.
    """
    written = stages != NO_STAGE
    columns = (np.ones_like(kl), entropy, kl, np.zeros_like(kl), np.abs(advantages))
    sums = [np.bincount(stages[written], column[written], len(names)).tolist() for column in columns]
    return {name: stage.model_dump(exclude={"clip_share"}) for name, stage in report_by_stage(sums, names).items()}


def flat_metrics(report: Mapping[str, Any], prefix: str = "rubricem") -> dict[str, float]:
    """The numbers in a nested report, under names such as `rubricem/true/answer`."""
    flat: dict[str, float] = {}
    for key, value in report.items():
        name = f"{prefix}/{key}"
        if isinstance(value, Mapping):
            flat |= flat_metrics(value, name)
        elif isinstance(value, list):
            numbers = [number for number in value if isinstance(number, int | float)]
            flat[f"{name}/count"] = float(len(value))
            if numbers:
                flat[f"{name}/mean"] = float(np.mean(numbers))
        elif isinstance(value, int | float):
            flat[name] = float(value)
    return flat
