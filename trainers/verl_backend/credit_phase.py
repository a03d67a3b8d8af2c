"""Phase B in veRL's trainer: which rollouts are trained on, and with which advantages."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import ray  # type: ignore[import-not-found,unused-ignore]
import transfer_queue as tq  # type: ignore[import-not-found,unused-ignore]
from verl.trainer.ppo.v1.trainer_base import PPOTrainer  # type: ignore[import-not-found,unused-ignore]

from trainers.local.record_entries import four_numbers
from trainers.verl_backend.advantage import CreditedRows, credit_rows, refuse_outage, token_advantages
from trainers.verl_backend.desk_types import RolloutCredit
from trainers.verl_backend.episode_row import Credentials
from trainers.verl_backend.queue_rows import is_padding, read_credentials, read_rows, write_advantages
from trainers.verl_backend.settings import VerlSettings
from trainers.verl_backend.step_report import TokenRow, flat_metrics, rollout_means, stage_means
from trainers.verl_backend.time_limits import within

TASKS = "train"
"""The partition of the queue that rollouts come in by."""
UPDATE_LIMIT = "rubricem.time_limits.update"


class CreditPhase(PPOTrainer):  # type: ignore[misc,unused-ignore]
    """Stage advantages in the place of veRL's estimators."""

    settings: VerlSettings
    desk: Any
    """The desk's handle."""
    told: dict[str, Any]
    """What is to be written down of the step."""
    _credited: Mapping[str, np.ndarray]
    """The stage advantages of the step's rows, by key."""
    _rows: Mapping[str, Credentials]
    _teaches: bool
    _recording: Any
    """The record of the latest update's rollouts, under way beside the update; None where there is none."""

    def _balance_batch(self, batch: Any, metrics: dict[str, Any], *others: Any, **named: Any) -> Any:
        """Before veRL spreads the rows over its workers: leave out those that teach nothing (choices B7, D6)."""
        if batch.partition_id == TASKS:
            batch = self._credit(batch, metrics)
        return super()._balance_batch(batch, metrics, *others, **named)

    def _credit(self, batch: Any, metrics: dict[str, Any]) -> Any:
        self._rows = read_credentials(batch)
        rows = list(self._rows.values())
        refuse_outage(rows, self.settings.judge.settings.failure_limit)
        groups = [key.split("_")[0] for key in self._rows]
        credited = credit_rows(rows, groups, mode=self.settings.credit, matrix=self.settings.matrix)
        self._credited = dict(zip(self._rows, credited.advantages, strict=True))
        self._teaches = bool(credited.trainable.any())
        self.told |= rollout_means(rows)
        self.told["trained_rollouts"] = int(credited.trainable.sum())
        metrics.update(flat_metrics(self.told))
        self._begin_recording(credited)
        if not self._teaches:
            return batch
        kept = [key for key, teaches in zip(self._rows, credited.trainable, strict=True) if teaches]
        dropped = [key for key in batch.keys if key not in set(kept)]
        if dropped:
            tq.kv_clear(keys=dropped, partition_id=batch.partition_id)
        return batch.select_keys(kept)

    def _begin_recording(self, credited: CreditedRows) -> None:
        """Have the desk write down what the rollouts were worth, beside the update."""
        self._finish_recording()
        if self.settings.record:
            told = [_told(key, credited, row) for row, key in enumerate(self._rows)]
            self._recording = self.desk.record.remote(self.global_steps, told)

    def _finish_recording(self) -> None:
        """Wait until it is written; what failed in it stops the run here."""
        recording, self._recording = self._recording, None
        if recording is not None:
            ray.get(recording)

    def _compute_old_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        call = partial(super()._compute_old_log_prob, batch, metrics)
        return within(
            self.settings.time_limits.update, "read the policy's log-probabilities", call, setting=UPDATE_LIMIT
        )

    def _compute_ref_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        call = partial(super()._compute_ref_log_prob, batch, metrics)
        return within(
            self.settings.time_limits.update, "read the reference's log-probabilities", call, setting=UPDATE_LIMIT
        )

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """The advantage of each token's stage; padding rows have none."""
        spread = {
            key: token_advantages(self._credited[key], self._rows[key].stage_ids)
            for key, tag in zip(batch.keys, batch.tags, strict=True)
            if not is_padding(tag)
        }
        self._tell_stages(batch, spread, metrics)
        return write_advantages(batch, spread)

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """One update; none where no rollout of the step teaches anything."""
        if batch.partition_id == TASKS and not self._teaches:
            return batch
        call = partial(super()._update_actor, batch, metrics)
        return within(self.settings.time_limits.update, "update the policy", call, setting=UPDATE_LIMIT)

    def _tell_stages(self, batch: Any, spread: Mapping[str, np.ndarray], metrics: dict[str, Any]) -> None:
        found = read_rows(batch, ["old_log_probs", "ref_log_prob", "entropy"])
        rows = [
            TokenRow(
                self._rows[key].stage_ids,
                spread[key],
                entropy=found["entropy"][place],
                kl=_kl(found, place),
            )
            for place, key in enumerate(batch.keys)
            if key in spread
        ]
        self.told["stages"] = stage_means(rows)
        metrics.update(flat_metrics({"stage": self.told["stages"]}))


def _told(key: str, credited: CreditedRows, row: int) -> RolloutCredit:
    group, place, *_ = key.split("_")
    return RolloutCredit(
        group,
        int(place),
        four_numbers(credited.returns[row].tolist()),
        four_numbers(credited.advantages[row].tolist()),
        trained=bool(credited.trainable[row]),
    )


def _kl(found: Mapping[str, list[np.ndarray]], place: int) -> np.ndarray:
    """exp(ref - old) - (ref - old) - 1, token by token; zeros without a reference."""
    old = found["old_log_probs"][place]
    if "ref_log_prob" not in found:
        return np.zeros_like(old)
    gap = np.clip(found["ref_log_prob"][place] - old, -20, 20)
    divergence: np.ndarray = np.exp(gap) - gap - 1
    return divergence
