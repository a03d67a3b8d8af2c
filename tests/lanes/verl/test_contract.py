"""What we put in the place of veRL's own is called as veRL calls its own: a new veRL fails here, at that line."""

import importlib.metadata
import inspect
from importlib import import_module
from pathlib import Path

import pytest
import torch
from verl.trainer.main_ppo import TaskRunnerV1
from verl.trainer.ppo.v1.trainer_base import PPOTrainer, get_trainer_cls
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu
from verl.workers.engine_workers import TrainingWorker

from rubricem_env.domain.errors import ConfigError
from trainers.verl_backend.launch import read_config
from trainers.verl_backend.trainer import (
    KEEPS_SCHEDULE,
    AsyncStageTrainer,
    ScheduledWorker,
    SeparateStageTrainer,
    SyncStageTrainer,
    TaskRunner,
)

VERL = "0.9.1"
SIGNATURES = {
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer._init_dataloader": "(self)",
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer._init_resource_pool_mgr": "(self)",
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer._load_checkpoint": "(self)",
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer._save_checkpoint": "(self)",
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer._fetch_one_gen_batch": "(self) -> tensordict._td.TensorDict",
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer.on_init_end": "(self)",
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer.on_step_end": "(self)",
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer.on_sample_end": "(self)",
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer._step_once": (
        "(self, metrics: dict, timing_raw: dict, sample_batch_size: int) -> transfer_queue.metadata.KVBatchMeta"
    ),
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer._balance_batch": (
        "(self, batch: transfer_queue.metadata.KVBatchMeta, metrics, logging_prefix='global_seqlen', "
        "keep_minibatch=False)"
    ),
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer._compute_old_log_prob": (
        "(self, batch: transfer_queue.metadata.KVBatchMeta, metrics: dict) -> transfer_queue.metadata.KVBatchMeta"
    ),
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer._compute_ref_log_prob": (
        "(self, batch: transfer_queue.metadata.KVBatchMeta, metrics: dict) -> transfer_queue.metadata.KVBatchMeta"
    ),
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer._compute_advantage": (
        "(self, batch: transfer_queue.metadata.KVBatchMeta, metrics: dict) -> transfer_queue.metadata.KVBatchMeta"
    ),
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer._update_actor": (
        "(self, batch: transfer_queue.metadata.KVBatchMeta, metrics: dict) -> transfer_queue.metadata.KVBatchMeta"
    ),
    "verl.experimental.agent_loop.agent_loop:AgentLoopBase.run": (
        "(self, sampling_params: dict[str, typing.Any], **kwargs) -> "
        "verl.experimental.agent_loop.agent_loop.AgentLoopOutput"
    ),
    "verl.workers.engine_workers:TrainingWorker.train_batch": (
        "(self, data: tensordict._td.TensorDict) -> tensordict._td.TensorDict"
    ),
    "verl.workers.rollout.replica:RolloutReplica.launch_servers": "(self)",
    "verl.checkpoint_engine.base:CheckpointEngine.prepare": "(self) -> dict[str, typing.Any]",
    "verl.checkpoint_engine.base:CheckpointEngine.build_topology": (
        "(actor_wg_world_size: int, rollout_world_size: int, metadata: list[dict]) -> "
        "tuple[dict[str, list[typing.Any]], dict[str, list[typing.Any]]]"
    ),
    "verl.checkpoint_engine.base:CheckpointEngine.init_process_group": "(self, **kwargs)",
    "verl.checkpoint_engine.base:CheckpointEngine.finalize": "(self)",
    "verl.checkpoint_engine.base:CheckpointEngine.send_weights": (
        "(self, weights: Generator[tuple[str, torch.Tensor], NoneType, NoneType], global_steps: int | None = None)"
    ),
    "verl.checkpoint_engine.base:CheckpointEngine.receive_weights": (
        "(self, global_steps: int | None = None) -> Generator[tuple[str, torch.Tensor], NoneType, NoneType]"
    ),
    "verl.utils.distributed:initialize_global_process_group_ray": "(timeout_second=None, backend=None)",
}


@pytest.mark.parametrize("place", SIGNATURES)
def test_what_we_override_has_the_signature_that_we_override(place):
    module, _, path = place.partition(":")
    found = import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    assert str(inspect.signature(found)) == SIGNATURES[place]


@pytest.mark.parametrize("ours", [AsyncStageTrainer, SyncStageTrainer, SeparateStageTrainer])
def test_every_method_that_we_put_in_the_place_of_verls_is_in_the_contract(ours):
    own = [kind for kind in ours.__mro__ if kind.__module__.startswith("trainers.")]
    replaced = {name for kind in own for name in vars(kind) if callable(vars(kind)[name]) and hasattr(PPOTrainer, name)}
    listed = {place.rpartition(".")[2] for place in SIGNATURES if ":PPOTrainer." in place}
    assert replaced - {"__init__", "__new__"} <= listed


def test_the_three_modes_stand_over_verls_modes_of_the_same_name():
    modes = {
        "rubricem_async": PPOTrainerColocateAsync,
        "rubricem_sync": PPOTrainerSync,
        "rubricem_separate": PPOTrainerSeparateAsync,
    }
    for name, base in modes.items():
        assert issubclass(get_trainer_cls(name), base)


def test_the_task_runner_is_verls_own_with_our_trainers_imported():
    assert issubclass(TaskRunner, TaskRunnerV1.__ray_metadata__.modified_class)


def test_verl_is_the_version_that_all_this_was_written_for():
    assert importlib.metadata.version("verl") == VERL


@pytest.mark.parametrize(("holds", "ticks"), [(True, False), (False, True)])
def test_an_update_on_reflections_leaves_the_schedule_where_it_is(monkeypatch, holds, ticks):
    monkeypatch.setattr(TrainingWorker, "train_batch", lambda self, data: data)
    told = {"update_lr_scheduler": True, **({KEEPS_SCHEDULE: True} if holds else {})}
    rows = tu.get_tensordict({"x": torch.zeros(2)}, non_tensor_dict=told)
    after = ScheduledWorker.train_batch(object.__new__(ScheduledWorker), rows)
    assert tu.get(after, key="update_lr_scheduler") is ticks


@pytest.mark.parametrize(
    "change",
    ["algorithm.use_kl_in_reward=true", "trainer.test_freq=5", "algorithm.rollout_correction.rollout_is=token"],
)
def test_what_our_trainer_would_leave_undone_is_refused_by_name(change):
    config = read_config(Path(__file__).parents[3] / "configs" / "verl_almanac_cpu.yaml", [change])
    with pytest.raises(ConfigError, match=f"{change.partition('=')[0]} is set"):
        AsyncStageTrainer(config)
