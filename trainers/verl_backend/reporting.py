"""What a run on veRL writes: metrics.jsonl and config.json as in the local trainer, and metrics for trackers."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rubricem_agent.learn.rollout_statistics import measure_rollouts
from rubricem_agent.learn.stage_metrics import mean_by_stage, report_by_stage
from rubricem_env.domain.base import STAGES, Frozen
from rubricem_records.rollout_tokens import NO_STAGE
from rubricem_records.run_record import GroupEntry, RolloutEntry

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


class JudgedGroup(Frozen):
    """A group that was judged and credited, as the record has it; until a step takes it, with its question's own step."""

    group: GroupEntry
    rollouts: tuple[RolloutEntry, ...]
    fallbacks: int
    """Rollouts in which scoring a stage failed, and the group's mean stands in."""

    def taken(self, step: int, place: int) -> "JudgedGroup":
        """The group as one of the step that trains on it, later than its question's own where steps are sampled ahead."""
        position = {"step": step, "place": place}
        rollouts = tuple(one.model_copy(update=position) for one in self.rollouts)
        return self.model_copy(update={"group": self.group.model_copy(update=position), "rollouts": rollouts})

    @property
    def failures(self) -> list[str]:
        """Why each rollout is left out of its group, in one sentence; "" where it is valid."""
        return [
            "" if one.is_valid else one.rollout.failure or one.judged.failure or "the judge gave no score"
            for one in self.rollouts
        ]


def rollout_means(groups: Sequence[JudgedGroup]) -> dict[str, Any]:
    """Means and counts over all rollouts of a step, those that are not trained on included."""
    rows = [row for group in groups for row in group.rollouts]
    true = mean_by_stage([row.true for row in rows if row.true is not None])
    sampled = sum(count for row in rows if row.tokens for stage, count in row.tokens.runs if stage != NO_STAGE)
    rollout_stats = measure_rollouts([[row.rollout for row in rows]]).model_copy(update={"policy_tokens": sampled})
    return {
        "encounter": Counter(one.group.encounter for one in groups).most_common(1)[0][0],
        # Empty outside the almanac, where the truth is not known.
        "true": {stage: value for stage, value in true.items() if value is not None},
        "judged": mean_by_stage([row.judged.judgement.scores for row in rows]),
        "rollout_stats": rollout_stats.model_dump(),
        "lost": sum(not row.is_valid for row in rows),
        "trained_rollouts": sum(row.trained for row in rows),
        "fallbacks": sum(group.fallbacks for group in groups),
    }


def stage_means(
    stages: npt.NDArray[np.integer], advantages: np.ndarray, *, entropy: np.ndarray, kl: np.ndarray
) -> dict[str, dict[str, float]]:
    """Tokens, entropy, KL and share of the advantages' weight, for each stage that has tokens; arrays are (tokens,).

    `kl` is from the reference, by the loss's own estimator; zeros without a reference.
    """
    written = stages != NO_STAGE
    columns = (np.ones_like(kl), entropy, kl, np.zeros_like(kl), np.abs(advantages))
    sums = [np.bincount(stages[written], column[written], len(STAGES)).tolist() for column in columns]
    return {name: one.model_dump(exclude={"clip_share"}) for name, one in report_by_stage(sums).items()}


def flat_metrics(report: Mapping[str, Any], prefix: str = "rubricem") -> dict[str, float]:
    """The numbers in a nested report, under names such as `rubricem/true/answer`."""
    flat: dict[str, float] = {}
    for key, value in report.items():
        name = f"{prefix}/{key}"
        if isinstance(value, Mapping):
            flat |= flat_metrics(value, name)
        elif isinstance(value, list):
            numbers = [one for one in value if isinstance(one, int | float)]
            flat[f"{name}/count"] = float(len(value))
            if numbers:
                flat[f"{name}/mean"] = float(np.mean(numbers))
        elif isinstance(value, int | float):
            flat[name] = float(value)
    return flat
