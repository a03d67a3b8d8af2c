"""RubricEM on veRL's trainers: what is theirs moves tensors, what is put in their place asks `rubricem_agent.learn`.

Three modes are registered, each over the mode of veRL that it is named after:

    rubricem_async      trainer and engines share their GPUs; a turn that is cut off goes on under the new weights
    rubricem_sync       the same, but nothing is being sampled while the weights change
    rubricem_separate   trainer and engines have GPUs of their own

A step samples the questions of the curriculum, takes an update on the reflections that have come in (Phase A), then
one on the rollouts (Phase B). Judging and reflecting are the desk's, in another process.

Phase B in veRL's trainer: which rollouts are trained on, and with which advantages.

veRL's training workers with one thing changed: an update can leave the learning rate's schedule where it is.

A step of ours is two updates, and the schedule counts steps. veRL moves it after every update, and has no switch.

Composes the config with veRL's own, and starts Ray and the trainer: imported when everything has been checked.

Phase A in veRL's trainer: one update on the reflections that have come in, before the one on the rollouts.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import ray  # type: ignore[import-not-found,unused-ignore]
import transfer_queue as tq  # type: ignore[import-not-found,unused-ignore]
import yaml  # type: ignore[import-untyped]
from hydra import compose, initialize_config_dir  # type: ignore[import-not-found,unused-ignore]
from hydra.errors import HydraException  # type: ignore[import-not-found,unused-ignore]
from omegaconf import OmegaConf, open_dict  # type: ignore[import-not-found,unused-ignore]
from omegaconf.errors import OmegaConfBaseException  # type: ignore[import-not-found,unused-ignore]
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError  # type: ignore[import-not-found,unused-ignore]
from transfer_queue import KVBatchMeta
from verl.experimental.separation.engine_workers import DetachActorWorker  # type: ignore[import-not-found,unused-ignore]
from verl.trainer.ppo.utils import Role  # type: ignore[import-not-found,unused-ignore]
from verl.trainer.ppo.v1.trainer_base import PPOTrainer, register_trainer  # type: ignore[import-not-found,unused-ignore]
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync  # type: ignore[import-not-found,unused-ignore]
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync  # type: ignore[import-not-found,unused-ignore]
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync  # type: ignore[import-not-found,unused-ignore]
from verl.utils import tensordict_utils as tu  # type: ignore[import-not-found,unused-ignore]
from verl.utils.debug import marked_timer  # type: ignore[import-not-found,unused-ignore]
from verl.utils.tensordict_utils import list_of_dict_to_tensordict  # type: ignore[import-not-found,unused-ignore]
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker  # type: ignore[import-not-found,unused-ignore]

from rubricem_agent.learn.curriculum import Curriculum
from rubricem_agent.learn.record import four_numbers
from rubricem_agent.learn.samples import Sample, reflection_samples
from rubricem_env.domain.errors import ConfigError, JudgeError
from trainers.verl_backend.actors import start_desk
from trainers.verl_backend.checkpoint import FOLDER, prune, refuse_other_run, run_identity, shape_of
from trainers.verl_backend.cpu.replica import register_replica
from trainers.verl_backend.queue import (
    forget_trained,
    is_padding,
    play_again,
    read_credentials,
    read_rows,
    wait_for_groups,
    write_advantages,
)
from trainers.verl_backend.reporting import (
    TokenRow,
    VerlLog,
    flat_metrics,
    lesson_means,
    rollout_means,
    stage_means,
    update_told,
)
from trainers.verl_backend.rows import (
    Credentials,
    CreditedRows,
    PhaseRow,
    RolloutCredit,
    TrainableReflections,
    credit_rows,
    phase_row,
    refuse_outage,
    token_advantages,
)
from trainers.verl_backend.settings import (
    SECTION,
    CurriculumStream,
    VerlSettings,
    load_training_questions,
    read_section,
    refuse_impossible,
)
from trainers.verl_backend.time_limits import ENGINE_LOST, WATCH_EVERY, WorkerLostError, within

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


HOLDS_SCHEDULE = "rubricem_holds_schedule"
"""In a batch's extra information: update the weights, but do not count a step."""

# The worker looks its sampling engine up by name, in its own process.
register_replica()


class HoldingWorker(TrainingWorker):  # type: ignore[misc,unused-ignore]
    """The engine's worker, within the actor's."""

    def train_batch(self, data: Any) -> Any:
        """One optimiser step, which moves the schedule or not."""
        if tu.get(data, key=HOLDS_SCHEDULE, default=False):
            tu.assign_non_tensor(data, update_lr_scheduler=False)
        return super().train_batch(data)


class StageWorker(ActorRolloutRefWorker):  # type: ignore[misc,unused-ignore]
    """Of the modes in which trainer and engines share their GPUs."""

    actor_worker_cls = HoldingWorker


class StageDetachWorker(DetachActorWorker):  # type: ignore[misc,unused-ignore]
    """Of the mode in which they do not."""

    actor_worker_cls = HoldingWorker


TASK_RUNNER = "trainers.verl_backend.launch"
MARKER = "latest_checkpointed_iteration.txt"
"""Where veRL writes down which step is saved."""


def launch(file: Path, changes: Sequence[str]) -> None:
    """Train to the end of the plan.

    Raises:
        RubricEMError: what stopped the run, wherever in the cluster it was raised.
    """
    set_environment(file)
    config = read_config(file, changes)
    refuse_impossible(config, read_section(OmegaConf.to_container(config.get(SECTION), resolve=True)))
    check_resume(config)
    # Not before now: what veRL does when it is imported depends on the environment.
    import_module(TASK_RUNNER).train(config)


def read_config(file: Path, changes: Sequence[str]) -> Any:
    """Our file over veRL's defaults, with `key=value` changes on top.

    Raises:
        ConfigError: a file cannot be read, or a key of veRL's is unknown.
    """
    try:
        with initialize_config_dir(config_dir=str(file.parent.absolute()), version_base=None):
            return compose(file.stem, overrides=[_with_defaults(change) for change in changes])
    except (HydraException, OmegaConfBaseException) as cause:
        raise ConfigError(f"the config {file} is refused: {' '.join(str(cause).split())}") from cause


def check_resume(config: Any) -> None:
    """Refuse a checkpoint of another run now: Ray and veRL take a minute to say so."""
    settings = read_section(OmegaConf.to_container(config.get(SECTION), resolve=True))
    folder = Path(config.trainer.default_local_dir).absolute()
    marker = folder / MARKER
    if config.trainer.resume_mode != "auto" or not marker.is_file():
        return
    identity = run_identity(settings, shape_of(config))
    refuse_other_run(folder / FOLDER, step=int(marker.read_text(encoding="utf-8")), identity=identity)


def _with_defaults(change: str) -> str:
    """A key of our section need not stand in the file to be changed: `read_section` knows which there are."""
    return f"++{change}" if change.startswith(f"{SECTION}.") else change


def set_environment(file: Path) -> None:
    """Give this process the variables that the config gives to Ray's workers; those that are set already stay."""
    try:
        told = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as cause:
        raise ConfigError(f"cannot read the config {file}: {cause}. Give the name of a file in configs.") from cause
    for part in ("ray_kwargs", "ray_init", "runtime_env", "env_vars"):
        told = told.get(part) or {} if isinstance(told, dict) else {}
    for name, value in told.items():
        os.environ.setdefault(str(name), str(value))


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
        lessons: TrainableReflections = ray.get(self.desk.collect.remote(self.global_steps))
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


SYNC_LIMIT = "rubricem.time_limits.sync"
LOOK_EVERY = 0.5
"""Seconds between two looks for finished groups. veRL's two seconds are a tenth of a step in the almanac."""
_ACTORS = (Role.Actor, Role.ActorRollout, Role.ActorRolloutRef, Role.RefPolicy)

# The trainer looks its sampling engines up by name, in its own process.
register_replica()


class StageTrainer(ReflectionPhase):
    """What all three modes have in common: questions, desk, checkpoints, the log and the time-outs."""

    worker_class: type = StageWorker

    def __init__(self, config: Any) -> None:
        self.settings = read_section(OmegaConf.to_container(config[SECTION], resolve=True))
        _refuse_ignored(config)
        self.told = {}
        self._recording = None
        self._phase_a_metrics: dict[str, float] = {}
        self._folder = Path(config.trainer.default_local_dir).absolute()
        self._log = VerlLog(self._folder, self.settings)
        super().__init__(config)
        self.replay_buffer.poll_interval = LOOK_EVERY

    def _init_dataloader(self) -> None:
        """The curriculum in the place of veRL's data loader, which has no notion of a window."""
        queries = load_training_questions(self.settings).queries
        curriculum = Curriculum(
            list(queries),
            batch_size=self.config.data.train_batch_size,
            window=self.settings.window,
            rng=np.random.default_rng(self.settings.seed),
        )
        self.train_dataloader = CurriculumStream(curriculum, queries)
        self.train_dataloader_it = None
        self.total_training_steps = self.config.trainer.total_training_steps
        # The stream has no epochs: one that lasts as long as the run keeps veRL from stopping before.
        self.steps_per_epoch = self.total_training_steps
        with open_dict(self.config):
            self.config.data.gen_batch_size = 1
            updates = self.total_training_steps * self.parameter_sync_step
            self.config.actor_rollout_ref.actor.optim.total_training_steps = updates

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        for role in _ACTORS:
            if role in self.role_worker_mapping:
                self.role_worker_mapping[role] = ray.remote(self.worker_class)

    def _load_checkpoint(self) -> None:
        """The weights by veRL, and our state of the same step."""
        super()._load_checkpoint()
        group_size = self.config.actor_rollout_ref.rollout.n
        self.desk = start_desk(self.settings, model=self.config.actor_rollout_ref.model.path, group_size=group_size)
        self._identity = run_identity(self.settings, shape_of(self.config))
        self._log.leave_settings(self.config)
        self._log.begin(self.global_steps)
        if self.settings.record:
            ray.get(self.desk.begin_record.remote(self._folder, self.global_steps))
        if self.global_steps > 0:
            forget_trained(TASKS)
            play_again(TASKS, self.settings.judge.settings.failure_limit)
            kept = self.desk.resume.remote(self._folder / FOLDER, step=self.global_steps, identity=self._identity)
            self.train_dataloader.load_state_dict(ray.get(kept))

    def _save_checkpoint(self) -> None:
        """Ours first: veRL writes down last of all that the step is saved. In between no group is marked."""
        stream = self.train_dataloader.state_dict()
        root = self._folder / FOLDER
        kept = self.desk.keep.remote(root, step=self.global_steps, stream=stream, identity=self._identity)
        written = partial(wait_for_groups, ray.get(kept), TASKS)
        seconds = self.settings.time_limits.sync
        within(seconds, "write down what is judged", written, setting=SYNC_LIMIT, watch=self._miss_nobody)
        super()._save_checkpoint()
        ray.get(self.desk.go_on.remote())
        prune(self._folder, step=self.global_steps, keep=self.config.trainer.max_actor_ckpt_to_keep)

    def on_init_end(self) -> None:
        self._in_time("bring the first weights to the sampling engines", super().on_init_end)
        ray.get(self.desk.open.remote(self.get_llm_client()))

    def on_step_end(self) -> None:
        self._in_time("bring the weights to the sampling engines", super().on_step_end, watch=self._miss_nobody)

    def _step_once(self, metrics: dict[str, Any], timing_raw: dict[str, float], sample_batch_size: int) -> Any:
        limits = self.settings.time_limits
        call = partial(super()._step_once, metrics, timing_raw, sample_batch_size)
        seconds = limits.sample + limits.update
        batch = within(
            seconds, "sample and train on a step", call, setting="rubricem.time_limits.sample", watch=self._miss_nobody
        )
        metrics.update(self._phase_a_metrics)
        if self.local_trigger_step == self.parameter_sync_step - 1:
            self._write_down(metrics, timing_raw)
        return batch

    def _miss_nobody(self) -> None:
        """Rollout workers, engines and the desk answer to nobody while a step is sampled: their death would pass."""
        engines = [engine for manager in self._rollout_server_managers() for engine in manager.server_handles]
        actors = [self.desk, *self.agent_loop_manager.agent_loop_workers, *engines]
        try:
            ray.get([actor.__ray_ready__.remote() for actor in actors], timeout=WATCH_EVERY)
            dead = ray.get([engine.__ray_call__.remote(has_lost_engine) for engine in engines], timeout=WATCH_EVERY)
        except (GetTimeoutError, ActorUnavailableError):
            # Busy, or out of reach for a moment: the next look tells.
            return
        except RayActorError as gone:
            raise WorkerLostError.of(str(gone)) from gone
        if any(dead):
            raise WorkerLostError.of(ENGINE_LOST)

    def _write_down(self, metrics: Mapping[str, Any], timing: Mapping[str, float]) -> None:
        """The step's line, before its checkpoint: a run killed after that has both, and one killed before has neither."""
        self._finish_recording()
        stages = self.told.pop("stages", None)
        told = {
            **self.told,
            "task": update_told(metrics, stages),
            "reflection": update_told(metrics, None, prefix="reflection/"),
            "seconds": _seconds(timing),
        }
        self.told = {}
        self._log.write(self.global_steps, told)

    def _in_time(self, doing: str, call: Any, *, watch: Callable[[], None] | None = None) -> None:
        within(self.settings.time_limits.sync, doing, call, setting=SYNC_LIMIT, watch=watch)


@register_trainer("rubricem_async")
class AsyncStageTrainer(StageTrainer, PPOTrainerColocateAsync):  # type: ignore[misc,unused-ignore]
    """The default."""


@register_trainer("rubricem_sync")
class SyncStageTrainer(StageTrainer, PPOTrainerSync):  # type: ignore[misc,unused-ignore]
    """To compare with: reflections are waited for before the engines rest."""

    def on_sample_end(self) -> None:
        ray.get(self.desk.drain.remote())
        super().on_sample_end()


@register_trainer("rubricem_separate")
class SeparateStageTrainer(StageTrainer, PPOTrainerSeparateAsync):  # type: ignore[misc,unused-ignore]
    """Needs a transport for weights between GPUs (nccl and the like), so it runs nowhere else."""

    worker_class = StageDetachWorker

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        # veRL looks it up under the name of the mode, and this mode's settings stand under veRL's own.
        self.parameter_sync_step = config.trainer.v1.separate_async.parameter_sync_step


def has_lost_engine(server: Any) -> bool:
    """Asked in a server's own process: vLLM's outlives its engine, which nobody else would miss."""
    return bool(getattr(getattr(server, "engine", None), "errored", False))


def _seconds(timing: Mapping[str, float]) -> dict[str, float]:
    """The time of each part; veRL counts Phase A, which comes at the end of sampling, as sampling."""
    seconds = {name: round(float(value), 2) for name, value in timing.items()}
    if "reflect" in seconds and "gen" in seconds:
        seconds["gen"] = round(seconds["gen"] - seconds["reflect"], 2)
    return seconds


TRAINERS = (AsyncStageTrainer, SyncStageTrainer, SeparateStageTrainer)


def _refuse_ignored(config: Any) -> None:
    """Refuse what veRL would do in the places that ours have taken, rather than leave it undone without a word.

    Raises:
        ConfigError: the config asks for such a thing, or says not how many steps there are.
    """
    algorithm, trainer = config.algorithm, config.trainer
    correction = algorithm.get("rollout_correction") or {}
    asked = {
        "trainer.val_before_train": trainer.val_before_train,
        "trainer.test_freq": trainer.test_freq > 0,
        "algorithm.use_kl_in_reward": algorithm.use_kl_in_reward,
        "algorithm.filter_groups.enable": algorithm.filter_groups.enable,
        "algorithm.rollout_correction.rollout_is": correction.get("rollout_is") is not None,
        "algorithm.rollout_correction.rollout_rs": correction.get("rollout_rs") is not None,
        "algorithm.rollout_correction.bypass_mode": bool(correction.get("bypass_mode")),
    }
    found = [name for name, is_asked in asked.items() if is_asked]
    if found:
        raise ConfigError(
            f"{found[0]} is set, and the trainer {trainer.v1.trainer_mode} does not do it: stage advantages take the "
            "place of veRL's estimators, and checkpoints are examined with `rubricem eval`. Take the key away."
        )
    if trainer.total_training_steps is None:
        raise ConfigError("trainer.total_training_steps is not set; the curriculum has no end of its own.")
