"""RubricEM on veRL's trainers: what is theirs moves tensors, what is put in their place asks `rubricem_agent.learn`.

Three modes are registered, each over the mode of veRL that it is named after:

    rubricem_async      trainer and engines share their GPUs; a turn that is cut off goes on under the new weights
    rubricem_sync       the same, but nothing is being sampled while the weights change
    rubricem_separate   trainer and engines have GPUs of their own

A step samples the questions of the curriculum, takes an update on the reflections that have come in (Phase A), then
one on the rollouts (Phase B). Judging and reflecting are the desk's, in another process.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ray  # type: ignore[import-not-found,unused-ignore]
from omegaconf import OmegaConf, open_dict  # type: ignore[import-not-found,unused-ignore]
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError  # type: ignore[import-not-found,unused-ignore]
from verl.trainer.ppo.utils import Role  # type: ignore[import-not-found,unused-ignore]
from verl.trainer.ppo.v1.trainer_base import register_trainer  # type: ignore[import-not-found,unused-ignore]
from verl.trainer.ppo.v1.trainer_colocate_async import (  # type: ignore[import-not-found,unused-ignore]
    PPOTrainerColocateAsync,
)
from verl.trainer.ppo.v1.trainer_separate_async import (  # type: ignore[import-not-found,unused-ignore]
    PPOTrainerSeparateAsync,
)
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync  # type: ignore[import-not-found,unused-ignore]

from rubricem_agent.learn.curriculum import Curriculum
from rubricem_env.domain.errors import ConfigError
from trainers.verl_backend.credit_phase import TASKS
from trainers.verl_backend.desk_actor import start_desk
from trainers.verl_backend.keeping import FOLDER, run_identity, shape_of
from trainers.verl_backend.pruning import prune
from trainers.verl_backend.questions import load_training_questions
from trainers.verl_backend.queue_rows import forget_trained, play_again, wait_for_groups
from trainers.verl_backend.reflection_phase import ReflectionPhase
from trainers.verl_backend.replica import register_replica
from trainers.verl_backend.run_log import VerlLog, update_told
from trainers.verl_backend.settings import SECTION, read_section
from trainers.verl_backend.stream import CurriculumStream
from trainers.verl_backend.time_limits import ENGINE_LOST, WATCH_EVERY, WorkerLostError, within
from trainers.verl_backend.worker import StageDetachWorker, StageWorker

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
