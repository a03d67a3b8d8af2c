"""RubricEM on veRL's trainers: veRL moves tensors and weights, `rubricem_agent.learn` decides what is trained on.

Three modes are registered, each over the mode of veRL that it is named after:

    rubricem_async      trainer and engines share their GPUs; an interrupted turn is resumed under the new weights
    rubricem_sync       the same, but nothing is sampled while the weights change
    rubricem_separate   trainer and engines have GPUs of their own

A step samples the questions of the curriculum, takes one update on the finished reflections (Phase A), then one on the
rollouts (Phase B). Judging and reflecting happen in the judge service, in another process.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ray  # type: ignore[import-not-found,unused-ignore]
import transfer_queue as tq  # type: ignore[import-not-found,unused-ignore]
from omegaconf import OmegaConf, open_dict  # type: ignore[import-not-found,unused-ignore]
from ray.exceptions import (  # type: ignore[import-not-found,unused-ignore]
    ActorUnavailableError,
    GetTimeoutError,
    RayActorError,
    RayError,
    RayTaskError,
)
from verl.experimental.separation.engine_workers import DetachActorWorker  # type: ignore[import-not-found,unused-ignore]
from verl.trainer.main_ppo import TaskRunnerV1, run_ppo  # type: ignore[import-not-found,unused-ignore]
from verl.trainer.ppo.utils import Role, need_critic, need_reference_policy  # type: ignore[import-not-found,unused-ignore]
from verl.trainer.ppo.v1.trainer_base import PPOTrainer, register_trainer  # type: ignore[import-not-found,unused-ignore]
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync  # type: ignore[import-not-found,unused-ignore]
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync  # type: ignore[import-not-found,unused-ignore]
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync  # type: ignore[import-not-found,unused-ignore]
from verl.utils import tensordict_utils as tu  # type: ignore[import-not-found,unused-ignore]
from verl.utils.config import validate_config  # type: ignore[import-not-found,unused-ignore]
from verl.utils.debug import marked_timer  # type: ignore[import-not-found,unused-ignore]
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker  # type: ignore[import-not-found,unused-ignore]

from rubricem_agent.files import trim_log
from rubricem_agent.learn.credit import Credit
from rubricem_agent.learn.curriculum import Curriculum
from rubricem_agent.learn.metrics import METRICS_FILE
from rubricem_agent.learn.samples import Sample, reflection_samples
from rubricem_env.domain.errors import BoundaryError, ConfigError, RubricEMError, boundary
from trainers.verl_backend.actors import LOOPS_FILE, start_judge_service
from trainers.verl_backend.checkpoint import FOLDER, identity_of, prune
from trainers.verl_backend.queue import (
    group_of,
    is_padding,
    read_credit_inputs,
    read_rows,
    remove_trained,
    reset_failed_groups,
    wait_for_groups,
    write_advantages,
)
from trainers.verl_backend.reporting import (
    flat_metrics,
    rollout_means,
    stage_means,
    update_metrics,
    write_settings,
    write_step,
)
from trainers.verl_backend.rows import (
    CreditInputs,
    credit_rows,
    reflection_row,
    refuse_outage,
    token_advantages,
)
from trainers.verl_backend.settings import SECTION, CurriculumStream, load_training_questions, read_section
from trainers.verl_backend.time_limits import ENGINE_LOST, WATCH_EVERY, lost_process, within

TASKS = "train"
"""veRL's partition of the queue for rollouts."""
REFLECTIONS = "reflect"
"""Our partition of the queue."""
KEEPS_SCHEDULE = "rubricem_keeps_schedule"
"""In a batch's extra information: update the weights, but not the learning rate's schedule."""
POLL_SECONDS = 0.5
"""Between two looks for finished groups. veRL's two seconds are a tenth of a step in the almanac."""
_ACTORS = (Role.Actor, Role.ActorRollout, Role.ActorRolloutRef, Role.RefPolicy)
_DEAD_ENGINE = "EngineDeadError"
"""vLLM's exception, by name: vLLM need not be installed here."""


class ScheduledWorker(TrainingWorker):  # type: ignore[misc,unused-ignore]
    """veRL's training worker, except that an update can leave the learning rate's schedule unchanged.

    A step of ours is two updates, and the schedule counts steps. veRL moves it after every update, without a switch.
    """

    def train_batch(self, data: Any) -> Any:
        """One optimiser step."""
        if tu.get(data, key=KEEPS_SCHEDULE, default=False):
            tu.assign_non_tensor(data, update_lr_scheduler=False)
        return super().train_batch(data)


class StageWorker(ActorRolloutRefWorker):  # type: ignore[misc,unused-ignore]
    """For the modes in which trainer and engines share their GPUs."""

    actor_worker_cls = ScheduledWorker


class StageDetachWorker(DetachActorWorker):  # type: ignore[misc,unused-ignore]
    """For the mode in which they do not."""

    actor_worker_cls = ScheduledWorker


class StageTrainer(PPOTrainer):  # type: ignore[misc,unused-ignore]
    """SS-GRPO and the reflection meta-policy over veRL's steps; what all three modes have in common.

    The methods stand in the order in which veRL calls them: set-up, a step with its two phases, the end of a step, the
    checkpoint.
    """

    worker_class: type = StageWorker
    judge_service: Any
    """Ray's handle of it."""

    def __init__(self, config: Any) -> None:
        self.settings = read_section(OmegaConf.to_container(config[SECTION], resolve=True))
        _refuse_ignored(config)
        self._folder = Path(config.trainer.default_local_dir).absolute()
        self._identity = identity_of(config, self.settings)
        self._line: dict[str, Any] = {}
        """The log's line of the step so far."""
        self._reflection_metrics: dict[str, float] = {}
        """veRL's metrics of Phase A, which the step's updates on rollouts report again."""
        self._rows: dict[str, CreditInputs] = {}
        """The rows of the update on rollouts, by key, in the order of the credit."""
        self._credit: Credit
        self._pending_record: Any = None
        """The call that records the rollouts of the latest update, in progress beside it."""
        super().__init__(config)
        self.replay_buffer.poll_interval = POLL_SECONDS

    def _init_dataloader(self) -> None:
        """The curriculum instead of veRL's data loader, which does not know windows."""
        queries, _ = load_training_questions(self.settings)
        curriculum = Curriculum(
            list(queries),
            batch_size=self.config.data.train_batch_size,
            window=self.settings.window,
            rng=np.random.default_rng(self.settings.seed),
        )
        self.train_dataloader = CurriculumStream(curriculum, queries)
        self.train_dataloader_it = None
        self.total_training_steps = self.config.trainer.total_training_steps
        # The stream has no epochs; one epoch as long as the run keeps veRL from stopping earlier.
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
        """Load the weights, then our state of the same step."""
        super()._load_checkpoint()
        model, group_size = self.config.actor_rollout_ref.model.path, self.config.actor_rollout_ref.rollout.n
        self.judge_service = start_judge_service(self.settings, model=model, group_size=group_size)
        write_settings(self._folder, self.settings, self.config)
        trim_log(self._folder / METRICS_FILE, self.global_steps)
        if self.settings.record:
            ray.get(self.judge_service.begin_record.remote(self._folder, self.global_steps))
        if self.global_steps > 0:
            remove_trained(TASKS)
            reset_failed_groups(TASKS, self.settings.judge.settings.failure_limit)
            root, step = self._folder / FOLDER, self.global_steps
            stream = self.judge_service.load.remote(root, step=step, identity=self._identity)
            self.train_dataloader.load_state_dict(ray.get(stream))

    def on_init_end(self) -> None:
        self._sync("bring the first weights to the sampling engines", super().on_init_end)
        ray.get(self.judge_service.open.remote(self.get_llm_client()))

    # A step. veRL calls on_sample_end when all groups are sampled, then balances, credits and trains on the batch.

    def _step_once(self, metrics: dict[str, Any], timing_raw: dict[str, float], sample_batch_size: int) -> Any:
        limits = self.settings.time_limits
        batch = within(
            limits.sample + limits.update,
            "sample and train on a step",
            partial(super()._step_once, metrics, timing_raw, sample_batch_size),
            setting="rubricem.time_limits.sample",
            watch=self._check_processes,
        )
        metrics.update(self._reflection_metrics)
        if self.local_trigger_step == self.parameter_sync_step - 1:
            self._write_line(metrics, timing_raw)
        return batch

    def on_sample_end(self) -> None:
        """Phase A: sampling is over and the engines are idle, so train on the reflections finished by now."""
        super().on_sample_end()
        if self.local_trigger_step == 0:
            with marked_timer("reflect", self.timing_raw):
                self._train_on_reflections()

    def _train_on_reflections(self) -> None:
        outcomes, metrics = ray.get(self.judge_service.collect.remote(self.global_steps))
        samples = reflection_samples(outcomes, version=self.global_steps - 1)
        self._line |= {**metrics, "reflections": len(samples)}
        self._reflection_metrics = flat_metrics(metrics)
        if samples:
            self._reflection_metrics |= self._update_on(samples)

    def _update_on(self, samples: Sequence[Sample]) -> dict[str, float]:
        """One optimiser step on reflections, or several with `reflection_mini_batch`; returns its metrics.

        These are veRL's own calls, on other rows and at another temperature.
        """
        keys = [f"lesson{index}_0_0" for index in range(len(samples))]
        rows = [
            reflection_row(sample, uid=group_of(key), step=self.global_steps)
            for key, sample in zip(keys, samples, strict=True)
        ]
        advantages = {
            key: np.asarray(sample.advantages, dtype=np.float32)[tag["prompt_len"] :]
            for key, sample, (_, tag) in zip(keys, samples, rows, strict=True)
        }
        fields = tu.list_of_dict_to_tensordict([fields for fields, _ in rows])
        batch = tq.kv_batch_put(keys=keys, partition_id=REFLECTIONS, fields=fields, tags=[tag for _, tag in rows])
        metrics: dict[str, Any] = {}
        try:
            with self._reflection_config(len(rows)):
                batch = self._balance_batch(batch, metrics)
                batch = self._compute_old_log_prob(batch, metrics)
                if self.use_reference_policy:
                    batch = self._compute_ref_log_prob(batch, metrics)
                batch = write_advantages(batch, advantages)
                batch.extra_info[KEEPS_SCHEDULE] = True
                self._update_actor(batch, metrics)
        finally:
            tq.kv_clear(keys=batch.keys, partition_id=REFLECTIONS)
        return {f"reflection/{name}": value for name, value in metrics.items()}

    @contextmanager
    def _reflection_config(self, count: int) -> Iterator[None]:
        """Change veRL's config: the temperature of reflections, groups of one, and Phase A's own mini-batch."""
        rollout, actor = self.config.actor_rollout_ref.rollout, self.config.actor_rollout_ref.actor
        before = (rollout.temperature, rollout.n, actor.ppo_mini_batch_size)
        multiple = self._row_multiple()
        mini_batch = -(-(self.settings.reflection_mini_batch or count) // multiple) * multiple
        with open_dict(self.config):
            rollout.temperature, rollout.n = self.settings.reflection.temperature, 1
            actor.ppo_mini_batch_size = mini_batch
            try:
                yield
            finally:
                rollout.temperature, rollout.n, actor.ppo_mini_batch_size = before

    def _row_multiple(self) -> int:
        """Rows come in multiples of the ranks, and of micro-batches where those have a fixed number of rows."""
        dispatch = self.actor_rollout_wg._dispatch_info
        if "actor" not in dispatch:
            dispatch["actor"] = self.actor_rollout_wg._query_dispatch_info("actor")
        ranks = int(max(dispatch["actor"])) + 1
        model = self.config.actor_rollout_ref
        if model.actor.use_dynamic_bsz:
            return ranks
        sizes = (
            model.actor.ppo_micro_batch_size_per_gpu,
            model.rollout.log_prob_micro_batch_size_per_gpu,
            model.ref.log_prob_micro_batch_size_per_gpu,
        )
        return ranks * math.lcm(*(size for size in sizes if size))

    def _balance_batch(self, batch: Any, metrics: dict[str, Any], *others: Any, **named: Any) -> Any:
        """Phase B begins: credit the rollouts before veRL spreads the rows over its workers."""
        if batch.partition_id == TASKS:
            batch = self._credit_batch(batch, metrics)
        return super()._balance_batch(batch, metrics, *others, **named)

    def _credit_batch(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Credit all rollouts and leave out those without an advantage (choices B7, D6), unless none has one."""
        self._rows = read_credit_inputs(batch)
        rows = list(self._rows.values())
        refuse_outage(rows, self.settings.judge.settings.failure_limit)
        groups = [group_of(key) for key in self._rows]
        self._credit = credit_rows(rows, groups, mode=self.settings.credit, matrix=self.settings.matrix)
        trainable = self._credit.trainable
        self._line |= {**rollout_means(rows), "trained_rollouts": int(trainable.sum())}
        metrics.update(flat_metrics(self._line))
        self._begin_record()
        if not trainable.any():
            return batch
        kept = [key for key, is_trained in zip(self._rows, trainable, strict=True) if is_trained]
        dropped = [key for key in batch.keys if key not in set(kept)]
        if dropped:
            tq.kv_clear(keys=dropped, partition_id=batch.partition_id)
        return batch.select_keys(kept)

    def _begin_record(self) -> None:
        """Let the judge service record the rollouts with their credit, beside the update."""
        self._finish_record()
        if not self.settings.record:
            return
        rollouts = [(group_of(key), int(key.split("_")[1])) for key in self._rows]
        self._pending_record = self.judge_service.record.remote(self.global_steps, rollouts, self._credit)

    def _finish_record(self) -> None:
        """Wait until the record is written; its failure stops the run here."""
        pending, self._pending_record = self._pending_record, None
        if pending is not None:
            ray.get(pending)

    def _compute_old_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        call = partial(super()._compute_old_log_prob, batch, metrics)
        return self._update_within("compute the policy's log-probabilities", call)

    def _compute_ref_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        call = partial(super()._compute_ref_log_prob, batch, metrics)
        return self._update_within("compute the reference's log-probabilities", call)

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Stage advantages instead of veRL's estimators: each token has its stage's, padding rows have none."""
        by_key = dict(zip(self._rows, self._credit.advantages, strict=True))
        advantages = {
            key: token_advantages(by_key[key], self._rows[key].stage_ids)
            for key, tag in zip(batch.keys, batch.tags, strict=True)
            if not is_padding(tag)
        }
        fields = read_rows(batch, ["old_log_probs", "ref_log_prob", "entropy"])
        kept = [index for index, key in enumerate(batch.keys) if key in advantages]
        old = np.concatenate([fields["old_log_probs"][index] for index in kept])
        kl = np.zeros_like(old)
        if "ref_log_prob" in fields:
            ref = np.concatenate([fields["ref_log_prob"][index] for index in kept])
            gap = np.clip(ref - old, -20, 20)
            kl = np.exp(gap) - gap - 1
        self._line["stages"] = stage_means(
            np.concatenate([self._rows[key].stage_ids for key in advantages]),
            np.concatenate(list(advantages.values())),
            entropy=np.concatenate([fields["entropy"][index] for index in kept]),
            kl=kl,
        )
        metrics.update(flat_metrics({"stage": self._line["stages"]}))
        return write_advantages(batch, advantages)

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """One update; none where no rollout of the step has an advantage."""
        if batch.partition_id == TASKS and not self._credit.trainable.any():
            return batch
        return self._update_within("update the policy", partial(super()._update_actor, batch, metrics))

    def _write_line(self, metrics: Mapping[str, Any], timing: Mapping[str, float]) -> None:
        """Write the step's line before its checkpoint: a run killed later has both, one killed earlier has neither."""
        self._finish_record()
        seconds = {name: round(float(value), 2) for name, value in timing.items()}
        if "reflect" in seconds and "gen" in seconds:
            # veRL counts Phase A, which comes at the end of sampling, as sampling.
            seconds["gen"] = round(seconds["gen"] - seconds["reflect"], 2)
        stages = self._line.pop("stages", None)
        line = {
            **self._line,
            "task": update_metrics(metrics, stages),
            "reflection": update_metrics(metrics, None, prefix="reflection/"),
            "seconds": seconds,
        }
        self._line = {}
        write_step(self._folder, self.global_steps, line, self.settings.watch)

    def on_step_end(self) -> None:
        self._sync("bring the weights to the sampling engines", super().on_step_end, watch=self._check_processes)

    def _save_checkpoint(self) -> None:
        """Our state first: veRL marks the step as saved last. In between no group gets its scores."""
        stream = self.train_dataloader.state_dict()
        root, step = self._folder / FOLDER, self.global_steps
        scored = ray.get(self.judge_service.save.remote(root, step=step, stream=stream, identity=self._identity))
        finished = partial(wait_for_groups, scored, TASKS)
        self._sync("write the judged groups", finished, watch=self._check_processes)
        super()._save_checkpoint()
        ray.get(self.judge_service.resume_scoring.remote())
        prune(self._folder, step=step, keep=self.config.trainer.max_actor_ckpt_to_keep)

    def _check_processes(self) -> None:
        """Raise for a dead process. While a step is sampled the trainer calls none of these, so it would not notice."""
        engines = [engine for manager in self._rollout_server_managers() for engine in manager.server_handles]
        actors = [self.judge_service, *self.agent_loop_manager.agent_loop_workers, *engines]
        try:
            ray.get([actor.__ray_ready__.remote() for actor in actors], timeout=WATCH_EVERY)
            dead = ray.get([engine.__ray_call__.remote(has_lost_engine) for engine in engines], timeout=WATCH_EVERY)
        except (GetTimeoutError, ActorUnavailableError):
            return  # Busy, or unreachable for a moment: the next check tells.
        except RayActorError as gone:
            raise lost_process(str(gone)) from gone
        if any(dead):
            raise lost_process(ENGINE_LOST)

    def _update_within(self, action: str, call: Callable[[], Any]) -> Any:
        return within(self.settings.time_limits.update, action, call, setting="rubricem.time_limits.update")

    def _sync(self, action: str, call: Callable[[], Any], *, watch: Callable[[], None] | None = None) -> None:
        within(self.settings.time_limits.sync, action, call, setting="rubricem.time_limits.sync", watch=watch)


@register_trainer("rubricem_async")
class AsyncStageTrainer(StageTrainer, PPOTrainerColocateAsync):  # type: ignore[misc,unused-ignore]
    """The default."""


@register_trainer("rubricem_sync")
class SyncStageTrainer(StageTrainer, PPOTrainerSync):  # type: ignore[misc,unused-ignore]
    """For comparison: reflections are waited for before the engines are idle."""

    def on_sample_end(self) -> None:
        ray.get(self.judge_service.drain.remote())
        super().on_sample_end()


@register_trainer("rubricem_separate")
class SeparateStageTrainer(StageTrainer, PPOTrainerSeparateAsync):  # type: ignore[misc,unused-ignore]
    """Needs a transport for weights between GPUs, such as nccl."""

    worker_class = StageDetachWorker

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        # veRL looks it up under the name of the mode, and this mode's settings are under veRL's own name.
        self.parameter_sync_step = config.trainer.v1.separate_async.parameter_sync_step


class TaskRunner(TaskRunnerV1.__ray_metadata__.modified_class):  # type: ignore[misc,name-defined,unused-ignore]
    """veRL's own. Its process imports this module, which registers our trainers."""


def has_lost_engine(server: Any) -> bool:
    """Called in a server's own process: vLLM's outlives its engine, and nothing else reports that."""
    return bool(getattr(getattr(server, "engine", None), "errored", False))


def _refuse_ignored(config: Any) -> None:
    """Refuse options of veRL whose code ours replaces, rather than ignore them silently.

    Raises:
        ConfigError: the config sets such an option, or does not say how many steps to train.
    """
    algorithm, trainer = config.algorithm, config.trainer
    correction = algorithm.get("rollout_correction") or {}
    options = {
        "trainer.val_before_train": trainer.val_before_train,
        "trainer.test_freq": trainer.test_freq > 0,
        "algorithm.use_kl_in_reward": algorithm.use_kl_in_reward,
        "algorithm.filter_groups.enable": algorithm.filter_groups.enable,
        "algorithm.rollout_correction.rollout_is": correction.get("rollout_is") is not None,
        "algorithm.rollout_correction.rollout_rs": correction.get("rollout_rs") is not None,
        "algorithm.rollout_correction.bypass_mode": bool(correction.get("bypass_mode")),
    }
    ignored = next((name for name, is_set in options.items() if is_set), None)
    if ignored:
        raise ConfigError(
            f"{ignored} is set, and the trainer {trainer.v1.trainer_mode} does not support it: stage advantages replace "
            "veRL's estimators, and checkpoints are evaluated with `rubricem eval`. Remove the key."
        )
    if trainer.total_training_steps is None:
        raise ConfigError("trainer.total_training_steps is not set, and the curriculum has no end. Set it.")


def train(config: Any) -> None:
    """Train to the last step; Ray is shut down on the way out, and with it every process of the run.

    Raises:
        RubricEMError: what stopped the run, wherever it was raised.
    """
    model, section = config.actor_rollout_ref.model, config[SECTION]
    with open_dict(config):
        config.actor_rollout_ref.rollout.agent.agent_loop_config_path = str(LOOPS_FILE)
        # Other nodes read these paths too, each from its own working directory; a model that is no folder is a name.
        config.trainer.default_local_dir = str(Path(config.trainer.default_local_dir).absolute())
        if Path(model.path).is_dir():
            model.path = str(Path(model.path).absolute())
        if section.get("questions"):
            section.questions = str(Path(section.questions).absolute())
    OmegaConf.resolve(config)
    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    try:
        with boundary(BoundaryError, "run on Ray"):
            run_ppo(config, task_runner_class=ray.remote(num_cpus=1)(TaskRunner))
    except RubricEMError as error:
        converted = error.__cause__ if type(error) is BoundaryError else None
        failure = converted or error
        raise root_cause(failure, is_started=ray.is_initialized()) from failure
    finally:
        ray.shutdown()


def root_cause(failure: BaseException, *, is_started: bool = True) -> BaseException:
    """Our own error under Ray's wrappers, the death of a process, or why Ray `is_started` not; else the failure itself."""
    if not is_started and (isinstance(failure, RayError) or not isinstance(failure, RubricEMError)):
        return BoundaryError(
            f"Ray did not start: {' '.join(str(failure).split()).rstrip('.') or type(failure).__name__}. Its settings are "
            "under ray_kwargs.ray_init, its logs under /tmp/ray/session_latest/logs."
        )
    inner: BaseException | None = failure
    while inner is not None:
        if isinstance(inner, RubricEMError) and not isinstance(inner, RayError):
            return inner
        if isinstance(inner, RayActorError) and not isinstance(inner, RayTaskError):
            return lost_process(str(inner))
        if type(inner).__name__ == _DEAD_ENGINE:
            return lost_process(ENGINE_LOST)
        inner = getattr(inner, "cause", None) or inner.__cause__
    return failure
