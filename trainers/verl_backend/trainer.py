"""RubricEM on veRL's trainers: veRL moves tensors and weights; the judge service gives each token its advantage.

Three modes are registered, each over the mode of veRL that it is named after:

    rubricem_async      trainer and engines share their GPUs; an interrupted turn is resumed under the new weights
    rubricem_sync       the same, but nothing is sampled while the weights change
    rubricem_separate   trainer and engines have GPUs of their own

A step samples the questions of the curriculum, takes one update on the finished reflections (Phase A), then one on the
rollouts (Phase B). Judging, credit and reflecting happen in the judge service, in another process.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ray  # type: ignore[import-not-found,unused-ignore]
from omegaconf import OmegaConf, open_dict  # type: ignore[import-not-found,unused-ignore]
from ray.exceptions import RayActorError, RayError, RayTaskError  # type: ignore[import-not-found,unused-ignore]
from verl.trainer.main_ppo import TaskRunnerV1, run_ppo  # type: ignore[import-not-found,unused-ignore]
from verl.trainer.ppo.core_algos import register_adv_est  # type: ignore[import-not-found,unused-ignore]
from verl.trainer.ppo.utils import need_critic, need_reference_policy  # type: ignore[import-not-found,unused-ignore]
from verl.trainer.ppo.v1.trainer_base import PPOTrainer, register_trainer  # type: ignore[import-not-found,unused-ignore]
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync  # type: ignore[import-not-found,unused-ignore]
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync  # type: ignore[import-not-found,unused-ignore]
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync  # type: ignore[import-not-found,unused-ignore]
from verl.utils.config import validate_config  # type: ignore[import-not-found,unused-ignore]
from verl.utils.debug import marked_timer  # type: ignore[import-not-found,unused-ignore]

from rubricem_agent.learn.curriculum import Curriculum
from rubricem_agent.learn.divergence import reference_kl
from rubricem_agent.learn.monitor import watch_run
from rubricem_agent.learn.samples import Sample, reflection_samples
from rubricem_agent.policy.base import model_folder
from rubricem_env.domain.errors import BoundaryError, JudgeError, RubricEMError, boundary
from rubricem_records.files.trimming import trim_log
from rubricem_records.runs.run_log import METRICS_FILE, append_line

from . import verl_parts
from .actors import LOOPS_FILE, start_judge_service
from .checkpoint import FOLDER, identity_of, prune, resumed_step
from .disk_room import DiskRoom
from .lost_processes import ENGINE_LOST, lost_process
from .question_stream import CurriculumStream
from .questions import load_training_questions
from .reporting import flat_metrics, stage_means, update_metrics, write_settings
from .row_queue import (
    CreditedRow,
    RowQueue,
    held_groups,
    read_credited,
    read_tokens,
    remove_trained,
    rows_of_update,
    sample_again,
    wait_for_groups,
)
from .rows import reflection_row
from .settings import SECTION, read_section, relative_paths, shipped_stages
from .time_limits import call_with_timeout
from .transfer_rows import TransferRows, tags_of
from .verl_names import ASYNC, ESTIMATOR, SEPARATE, SYNC

TASKS = "train"
"""veRL's partition of the queue for rollouts."""
REFLECTIONS = "reflect"
"""Our partition of the queue."""
POLL_SECONDS = 0.5
"""The poll interval for finished groups. veRL's own, two seconds, is a tenth of a step in the almanac."""
EVICTED = ("training/rollout_failure/evicted_samples", "training/off_policy/evicted_samples")
"""veRL's counts of groups that it evicted in a step: those of failed rollout workers, then those that were too old."""
_EVICTED = (
    "A rollout worker failed, or groups are judged too late (rubricem.max_age): see the workers' logs under "
    "/tmp/ray/session_latest/logs. The same command resumes from the last checkpoint."
)
_DEAD_ENGINE = "EngineDeadError"
"""vLLM's exception, by name: vLLM need not be installed here."""


@register_adv_est(ESTIMATOR)  # type: ignore[untyped-decorator,unused-ignore]
def carried_advantages(token_level_rewards: Any, **_: Any) -> tuple[Any, Any]:
    """Advantages and returns. Both are what the rows carry: the judge service has credited whole groups."""
    return token_level_rewards, token_level_rewards


class StageTrainer(PPOTrainer):  # type: ignore[misc,unused-ignore]
    """SS-GRPO and the reflection meta-policy over veRL's steps; each mode adds this class to one of veRL's trainers.

    The methods stand in the order in which veRL calls them: set-up, a step with its two phases, the end of a step, the
    checkpoint.
    """

    judge_service: Any
    """Ray's handle of the judge service."""
    actor_rollout_wg: Any
    """veRL's training workers."""
    queue: RowQueue = TransferRows()
    """The rows that workers write and veRL trains on."""

    def __init__(self, config: Any) -> None:
        self.settings = read_section(OmegaConf.to_container(config[SECTION], resolve=True))
        limits = self.settings.time_limits
        self._update_within = partial(call_with_timeout, limits.update, setting="rubricem.time_limits.update")
        self._sync = partial(call_with_timeout, limits.sync, setting="rubricem.time_limits.sync")
        self._folder = Path(config.trainer.default_local_dir).absolute()
        self._room = DiskRoom(self._folder)
        self._identity = identity_of(config, self.settings)
        self._line: dict[str, Any] = {}
        """What the log's line of the step holds so far."""
        self._phase_a: dict[str, float] = {}
        """Metrics of Phase A. Every update of the step on rollouts reports them to veRL's trackers again."""
        self._rows: list[CreditedRow] = []
        """The windows of the step's rollouts."""
        self._update_rows: int | None = None
        """Rows of an update, where a rollout has several; None is veRL's number of rollouts."""
        self._teaches = True
        """Whether any of these rollouts has an advantage."""
        self._evicted = 0
        """Groups that veRL has evicted and replaced since the last batch."""
        super().__init__(config)
        if self.trainer_mode == SEPARATE:
            # veRL looks this up under the mode's name, but the settings of the mode are under veRL's own name.
            self.parameter_sync_step = config.trainer.v1.separate_async.parameter_sync_step
        self.replay_buffer.poll_interval = POLL_SECONDS
        self.replay_buffer.refill_fn = self._replace_evicted

    def _init_dataloader(self) -> None:
        """Use the curriculum instead of veRL's data loader, which does not know windows."""
        queries, _ = load_training_questions(self.settings)
        curriculum = Curriculum(
            list(queries),
            batch_size=self.config.data.train_batch_size,
            window=self.settings.window,
            repeats=self.settings.repeats,
            rng=np.random.default_rng(self.settings.seed),
        )
        self.train_dataloader = CurriculumStream(curriculum, queries)
        self.train_dataloader_it = None
        self.total_training_steps = self.config.trainer.total_training_steps
        # The stream has no epochs. With one epoch as long as the run, veRL does not stop earlier.
        self.steps_per_epoch = self.total_training_steps
        with open_dict(self.config):
            self.config.data.gen_batch_size = 1

    def _load_checkpoint(self) -> None:
        """Load the weights, then our state of the same step.

        The weights are resharded first where another number of ranks has saved them.
        """
        if step := resumed_step(self.config):
            actor = self._folder / f"global_step_{step}" / "actor"
            workers = self.actor_rollout_wg.workers
            ray.get([worker.__ray_call__.remote(verl_parts.reshard, actor) for worker in workers])
        super()._load_checkpoint()
        run = self.config.actor_rollout_ref
        self.judge_service = start_judge_service(self.settings, model=run.model.path, group_size=run.rollout.n)
        write_settings(self._folder, self.settings, self.config)
        trim_log(self._folder / METRICS_FILE, self.global_steps)
        if self.settings.record:
            ray.get(self.judge_service.begin_record.remote(self._folder, self.global_steps))
        if self.global_steps > 0:
            remove_trained(self.queue, TASKS)
            load = self.judge_service.load.remote
            stream, spoilt = ray.get(load(self._folder / FOLDER, step=self.global_steps, identity=self._identity))
            sample_again(self.queue, TASKS, spoilt)
            self.train_dataloader.load_state_dict(stream)

    def on_init_end(self) -> None:
        self._sync("bring the first weights to the sampling engines", super().on_init_end)
        ray.get(self.judge_service.open.remote(self.get_llm_client()))

    # A step. veRL calls on_sample_end when all groups are sampled, then balances and trains on the batch.

    def _step_once(self, metrics: dict[str, Any], timing_raw: dict[str, float], sample_batch_size: int) -> Any:
        limits = self.settings.time_limits
        batch = call_with_timeout(
            limits.sample + limits.update,
            "sample and train on a step",
            partial(super()._step_once, metrics, timing_raw, sample_batch_size),
            setting="rubricem.time_limits.sample",
            watch=self._check_processes,
            paused=lambda: float(ray.get(self.judge_service.pauses.remote())[1]),
        )
        metrics.update(self._phase_a)
        if self.local_trigger_step == self.parameter_sync_step - 1:
            self._write_line(metrics, timing_raw)
        return batch

    def _replace_evicted(self, count: int) -> None:
        """Sample other questions instead of groups that veRL has evicted; a whole step of them stops the run."""
        self._evicted += count
        if self._evicted >= self.config.data.train_batch_size:
            raise JudgeError(f"veRL evicted {self._evicted} groups while a step was sampled. {_EVICTED}")
        self._add_prompts_to_generate(count)

    def on_sample_end(self) -> None:
        """Phase A: sampling is over and the engines are idle, so train on the reflections that are finished."""
        if self.trainer_mode == SYNC:
            # The engines must be idle between the steps.
            ray.get(self.judge_service.drain.remote())
        super().on_sample_end()
        if self.local_trigger_step == 0:
            with marked_timer("reflect", self.timing_raw):
                self._train_on_reflections()

    def _train_on_reflections(self) -> None:
        outcomes, metrics = ray.get(self.judge_service.collect.remote(self.global_steps))
        samples = reflection_samples(outcomes, version=self.global_steps - 1)
        self._line |= {**metrics, "reflections": len(samples)}
        self._phase_a = flat_metrics(metrics)
        if samples:
            self._phase_a |= self._update_on(samples)

    def _update_on(self, samples: Sequence[Sample]) -> dict[str, float]:
        """One optimiser step on reflections; returns its metrics.

        These are veRL's own calls, on other rows and at another temperature.
        """
        rows = [
            reflection_row(sample, uid=f"lesson{index}", step=self.global_steps) for index, sample in enumerate(samples)
        ]
        tags = {f"lesson{index}_0_0": tag for index, (_, tag) in enumerate(rows)}
        batch = self.queue.put(REFLECTIONS, tags, [fields for fields, _ in rows])
        multiple = self._row_multiple()
        mini_batch = -(-len(rows) // multiple) * multiple
        temperature = self.settings.reflection.temperature
        metrics: dict[str, Any] = {}
        try:
            with verl_parts.phase_a_config(self.config, temperature=temperature, mini_batch=mini_batch):
                batch = self._balance_batch(batch, metrics)
                batch = self._compute_old_log_prob(batch, metrics)
                if self.use_reference_policy:
                    batch = self._compute_ref_log_prob(batch, metrics)
                batch = self._compute_advantage(batch, metrics)
                self._update_actor(batch, metrics)
        finally:
            self.queue.clear(REFLECTIONS, batch.keys)
        return {f"reflection/{name}": value for name, value in metrics.items()}

    def _row_multiple(self) -> int:
        """A batch must have a multiple of this many rows: of the ranks, and of micro-batches with a fixed size."""
        model, trainer = self.config.actor_rollout_ref, self.config.trainer
        ranks = trainer.nnodes * trainer.n_gpus_per_node // model.actor.ulysses_sequence_parallel_size
        sizes = (
            model.actor.ppo_micro_batch_size_per_gpu,
            model.rollout.log_prob_micro_batch_size_per_gpu,
            model.ref.log_prob_micro_batch_size_per_gpu,
        )
        return int(ranks if model.actor.use_dynamic_bsz else ranks * math.lcm(*filter(None, sizes)))

    def _balance_batch(self, batch: Any, metrics: dict[str, Any], **options: Any) -> Any:
        """Divide the rows among the ranks, and those of folded rollouts among as many updates as those of others."""
        if batch.partition_id != TASKS:
            return super()._balance_batch(batch, metrics, **options)
        self._update_rows = rows_of_update(batch.keys, rollouts=self._rollouts, multiple=self._row_multiple())
        if self._update_rows is None:
            return super()._balance_batch(batch, metrics, **options)
        with verl_parts.mini_batch_config(self.config, self._update_rows):
            return super()._balance_batch(batch, metrics, **options)

    @property
    def _rollouts(self) -> int:
        """Of an update."""
        model = self.config.actor_rollout_ref
        return int(model.actor.ppo_mini_batch_size * model.rollout.n)

    def _compute_old_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Compute the policy's own log-probabilities. Phase B begins with this call."""
        if batch.partition_id == TASKS:
            self._report_rollouts(batch, metrics)
        call = partial(super()._compute_old_log_prob, batch, metrics)
        return self._update_within("compute the policy's log-probabilities", call)

    def _report_rollouts(self, batch: Any, metrics: dict[str, Any]) -> None:
        """Get the report about the batch's groups from the judge service.

        Raises:
            JudgeError: judge or search lost too many of the step's rollouts, or rollout workers failed on too many of
                its groups.
        """
        self._rows = read_credited(self.queue, TASKS, tags_of(batch))
        groups = list(dict.fromkeys(row.group for row in self._rows))
        self._line |= ray.get(self.judge_service.report.remote(self.global_steps, groups))
        versions = {row.rollout: row.version for row in self._rows}
        self._line["ages"] = dict(Counter(str(self.global_steps - 1 - version) for version in versions.values()))
        failed, stale = (int(metrics.get(name, 0)) for name in EVICTED)
        self._line["evicted"] = {"failed": failed, "stale": stale}
        self._evicted = 0
        if failed > self.settings.evicted_limit * self.config.data.train_batch_size:
            raise JudgeError(
                f"rollout workers failed on {failed} groups of a step, more than "
                f"rubricem.evicted_limit={self.settings.evicted_limit:g} of it. {_EVICTED}"
            )
        self._teaches = any((row.stages >= 0).any() for row in self._rows)
        metrics.update(flat_metrics(self._line))

    def _compute_ref_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        call = partial(super()._compute_ref_log_prob, batch, metrics)
        return self._update_within("compute the reference's log-probabilities", call)

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Use veRL's own path: the off-policy correction of the config, then our estimator."""
        if batch.partition_id == TASKS and not self._teaches:
            return batch
        batch = super()._compute_advantage(batch, metrics)
        if batch.partition_id == TASKS:
            self._line["stages"] = self._stage_report()
            metrics.update(flat_metrics({"stage": self._line["stages"]}))
        return batch

    def _stage_report(self) -> dict[str, dict[str, float]]:
        """Metrics by stage. Empty in bypass mode, which computes neither entropy nor the policy's log-probabilities."""
        names = ["old_log_probs", "ref_log_prob", "entropy", "advantages"]
        tokens = read_tokens(self.queue, TASKS, [row.key for row in self._rows], names)
        if "entropy" not in tokens:
            return {}
        old = tokens["old_log_probs"]
        kl = np.zeros_like(old)
        if "ref_log_prob" in tokens:
            kl = reference_kl(old, tokens["ref_log_prob"])
        stages = np.concatenate([row.stages for row in self._rows])
        of_set = self.settings.stage_set.scaffold.names
        return stage_means(stages, tokens["advantages"], entropy=tokens["entropy"], kl=kl, names=of_set)

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Make one update; none where no rollout of the step has an advantage."""
        if batch.partition_id == TASKS and not self._teaches:
            return batch
        update = partial(super()._update_actor, batch, metrics)
        if batch.partition_id == TASKS and self._update_rows is not None:
            update = partial(self._update_on_windows, update, self._update_rows)
        return self._update_within("update the policy", update)

    def _update_on_windows(self, update: Callable[[], Any], rows: int) -> Any:
        """Updates of so many rows, whose loss is divided by the rollouts where it is not by tokens."""
        workers = self.actor_rollout_wg
        self.actor_rollout_wg = verl_parts.RolloutCount(workers, self._rollouts)
        try:
            with verl_parts.mini_batch_config(self.config, rows):
                return update()
        finally:
            self.actor_rollout_wg = workers

    def _write_line(self, metrics: Mapping[str, Any], timing: Mapping[str, float]) -> None:
        """Write the step's line before its checkpoint: a run killed later has both, one killed earlier has neither."""
        ray.get(self.judge_service.finish_record.remote())
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
        append_line(self._folder / METRICS_FILE, {"step": self.global_steps, **line})
        self._room.watch()
        watch_run(self._folder, self.settings.watch)

    def on_step_end(self) -> None:
        every = self.config.trainer.save_freq
        is_paused = ray.get(self.judge_service.pauses.remote())[0]
        if is_paused and every > 0 and self.global_steps % every:
            # The judge may stay away for longer than the run waits for it.
            self._save_checkpoint()
        self._sync("bring the weights to the sampling engines", super().on_step_end, watch=self._check_processes)

    def _save_checkpoint(self) -> None:
        """Save our state, then veRL's, which marks the step as saved last. No group gets its credit in between."""
        self._room.refuse()
        stream = self.train_dataloader.state_dict()
        step = self.global_steps
        held = held_groups(self.queue, TASKS)
        call = self.judge_service.save.remote(
            self._folder / FOLDER, step=step, held=held, stream=stream, identity=self._identity
        )
        finished = partial(wait_for_groups, self.queue, TASKS, ray.get(call))
        self._sync("write the judged groups", finished, watch=self._check_processes)
        super()._save_checkpoint()
        ray.get(self.judge_service.resume_scoring.remote())
        prune(self._folder, step=step, keep=self.config.trainer.max_actor_ckpt_to_keep)

    def _check_processes(self) -> None:
        verl_parts.check_processes(self, [self.judge_service])


MODES = {ASYNC: PPOTrainerColocateAsync, SYNC: PPOTrainerSync, SEPARATE: PPOTrainerSeparateAsync}
"""veRL's mode under each of ours. `rubricem_separate` needs a transport for weights between GPUs, such as nccl."""
for _name, _mode in MODES.items():
    register_trainer(_name)(type(f"StageTrainer_{_name}", (StageTrainer, _mode), {}))


class TaskRunner(TaskRunnerV1.__ray_metadata__.modified_class):  # type: ignore[misc,name-defined,unused-ignore]
    """veRL's task runner. Its process imports this module, which registers our trainers."""


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
        folder = model_folder(Path(model.path))
        if folder.is_dir():
            model.path = str(folder.absolute())
        settings = read_section(OmegaConf.to_container(section, resolve=True))
        absolute = {key: str(path) for key, path in relative_paths(settings)}
        for key, value in (absolute | shipped_stages(settings)).items():
            OmegaConf.update(section, key, value, force_add=True)
        config.algorithm.adv_estimator = ESTIMATOR
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
    """The cause under Ray's wrappers: our own error or the death of a process; else the failure itself.

    Where Ray has not started, it is the reason for that.
    """
    if not is_started and (isinstance(failure, RayError) or not isinstance(failure, RubricEMError)):
        return BoundaryError(
            f"Ray did not start: {' '.join(str(failure).split()).rstrip('.') or type(failure).__name__}. Its settings "
            "are under ray_kwargs.ray_init, its logs under /tmp/ray/session_latest/logs."
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
