"""Phase A in veRL's trainer: one update on the reflections that have come in, before the one on the rollouts."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray  # type: ignore[import-not-found,unused-ignore]
import transfer_queue as tq  # type: ignore[import-not-found,unused-ignore]
from omegaconf import open_dict  # type: ignore[import-not-found,unused-ignore]
from transfer_queue import KVBatchMeta
from verl.utils.debug import marked_timer  # type: ignore[import-not-found,unused-ignore]
from verl.utils.tensordict_utils import list_of_dict_to_tensordict  # type: ignore[import-not-found,unused-ignore]

from rubricem_agent.learn.batch import Sample
from rubricem_env.domain.errors import JudgeError
from trainers.local.samples import reflection_samples
from trainers.verl_backend.credit_phase import CreditPhase
from trainers.verl_backend.desk_types import Lessons
from trainers.verl_backend.phase_rows import PhaseRow, phase_row
from trainers.verl_backend.queue_rows import write_advantages
from trainers.verl_backend.step_report import flat_metrics, lesson_means
from trainers.verl_backend.worker import HOLDS_SCHEDULE

REFLECTIONS = "reflect"
"""A partition of the queue of our own."""


class ReflectionPhase(CreditPhase):
    """The meta-policy's update. It is veRL's own four calls, on other rows and at another temperature."""

    def on_sample_end(self) -> None:
        """Sampling is over and the engines rest: train on what was written meanwhile."""
        super().on_sample_end()
        if self.local_trigger_step == 0:
            with marked_timer("reflect", self.timing_raw):
                self._train_on_reflections()

    def _train_on_reflections(self) -> None:
        lessons: Lessons = ray.get(self.desk.collect.remote(self.global_steps))
        if lessons.fault:
            raise JudgeError(lessons.fault)
        self.told |= lesson_means(lessons)
        samples = reflection_samples(lessons.outcomes, version=self.global_steps - 1)
        self.told["reflections"] = len(samples)
        self._phase_a_metrics = flat_metrics(lesson_means(lessons))
        if samples:
            self._phase_a_metrics |= self._update_on(samples)

    def _update_on(self, samples: Sequence[Sample]) -> dict[str, float]:
        """One optimiser step on reflections, or several where `reflection_mini_batch` says so; its metrics."""
        rows = {
            f"lesson{place}_0_0": phase_row(sample, uid=f"lesson{place}", step=self.global_steps)
            for place, sample in enumerate(samples)
        }
        metrics: dict[str, Any] = {}
        batch = _put(rows)
        try:
            with self._as_reflections(len(rows)):
                batch = self._balance_batch(batch, metrics)
                batch = self._compute_old_log_prob(batch, metrics)
                if self.use_reference_policy:
                    batch = self._compute_ref_log_prob(batch, metrics)
                batch = write_advantages(batch, {key: row.advantages for key, row in rows.items()})
                batch.extra_info[HOLDS_SCHEDULE] = True
                self._update_actor(batch, metrics)
        finally:
            tq.kv_clear(keys=batch.keys, partition_id=REFLECTIONS)
        return {f"reflection/{name}": value for name, value in metrics.items()}

    @contextmanager
    def _as_reflections(self, count: int) -> Iterator[None]:
        """The keys of veRL as Phase A needs them: the temperature of the samples, and a mini-batch of its own."""
        rollout, actor = self.config.actor_rollout_ref.rollout, self.config.actor_rollout_ref.actor
        before = (rollout.temperature, rollout.n, actor.ppo_mini_batch_size)
        multiple = self._row_multiple()
        mini_batch = -(-(self.settings.reflection_mini_batch or count) // multiple) * multiple
        with open_dict(self.config):
            rollout.temperature, rollout.n, actor.ppo_mini_batch_size = (
                self.settings.reflection.temperature,
                1,
                mini_batch,
            )
            try:
                yield
            finally:
                rollout.temperature, rollout.n, actor.ppo_mini_batch_size = before

    def _row_multiple(self) -> int:
        """Rows come in multiples of the ranks, and of micro-batches where those have a fixed number of rows."""
        known = self.actor_rollout_wg._dispatch_info
        if "actor" not in known:
            known["actor"] = self.actor_rollout_wg._query_dispatch_info("actor")
        ranks = int(max(known["actor"])) + 1
        parts = self.config.actor_rollout_ref
        if parts.actor.use_dynamic_bsz:
            return ranks
        counts = (
            parts.actor.ppo_micro_batch_size_per_gpu,
            parts.rollout.log_prob_micro_batch_size_per_gpu,
            parts.ref.log_prob_micro_batch_size_per_gpu,
        )
        return ranks * math.lcm(*(count for count in counts if count))


def _put(rows: dict[str, PhaseRow]) -> KVBatchMeta:
    fields = list_of_dict_to_tensordict([row.fields for row in rows.values()])
    tags = [row.tag for row in rows.values()]
    return tq.kv_batch_put(keys=list(rows), partition_id=REFLECTIONS, fields=fields, tags=tags)
