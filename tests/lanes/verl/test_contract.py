"""All that the backend overrides or touches inside veRL, read from the installed one: a new veRL fails here."""

import importlib.metadata
import inspect
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch
import verl
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics
from verl.trainer.main_ppo import TaskRunnerV1
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verl.trainer.ppo.v1.trainer_base import PPOTrainer, get_trainer_cls

from rubricem_env.domain.errors import JudgeError
from trainers.verl_backend import trainer as trainer_module
from trainers.verl_backend.actors import CreditedOutput
from trainers.verl_backend.row_queue import CreditedRow
from trainers.verl_backend.trainer import EVICTED, MODES, StageTrainer, TaskRunner
from trainers.verl_backend.verl_names import ESTIMATOR

VERL = "0.9.1"
SIGNATURES = {
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer._init_dataloader": "(self)",
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
    "verl.trainer.ppo.v1.trainer_base:PPOTrainer._add_prompts_to_generate": "(self, num_prompts: int) -> int",
    "verl.experimental.agent_loop.agent_loop:AgentLoopOutput.as_dict": "(self) -> dict[str, typing.Any]",
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


class PrivatePart(NamedTuple):
    """Something inside veRL: where it is defined, text that must stand in its source there, and why it is touched."""

    where: str
    """module:name or module:class.method."""
    text: str
    reason: str


_BASE = "verl.trainer.ppo.v1.trainer_base:PPOTrainer"
_BUFFER = "verl.trainer.ppo.v1.replay_buffer:ReplayBuffer"
_LOOPS = "verl.trainer.ppo.v1.agent_loop_tq:AgentLoopWorkerTQ"
_SAVED = "verl.utils.checkpoint.fsdp_checkpoint_manager:FSDPCheckpointManager"
_FSDP = "verl.workers.engine.fsdp.transformer_impl:FSDPEngine"
PARTS = (
    PrivatePart(f"{_BUFFER}.__init__", "self.poll_interval = poll_interval", "two seconds are a tenth of a step here"),
    PrivatePart(
        f"{_BUFFER}.__init__", "self.refill_fn = refill_fn", "groups that veRL evicts are counted, and limited"
    ),
    PrivatePart(f"{_BUFFER}._evict_terminal_groups", "/rollout_failure/evicted_samples", "evicted groups are counted"),
    PrivatePart(f"{_BUFFER}._evict_terminal_groups", "/off_policy/evicted_samples", "groups too old are counted"),
    PrivatePart(f"{_BUFFER}Async._stale_terminal_keys", "max_off_policy_threshold", "`rubricem.max_age`, plus 1"),
    PrivatePart(f"{_BUFFER}._materialize_batch", 'key.split("_")[0]', "a rollout's key begins with its group's name"),
    PrivatePart(f"{_LOOPS}._agent_loop_postprocess", 'f"{uid}_{session_id}_{i}"', "the same, where the key is made"),
    PrivatePart(f"{_LOOPS}._agent_loop_postprocess", "output.as_dict()", "`CreditedOutput` puts advantages there"),
    PrivatePart(
        f"{_LOOPS}._agent_loop_postprocess", '"min_global_steps"', "the tag of a row's oldest weights: its age"
    ),
    PrivatePart(f"{_LOOPS}._agent_loop_postprocess", '"response_len"', "rows of reflections have the same tags"),
    PrivatePart(f"{_LOOPS}._run_prompt", '"status": status', "the tag that says whether a group is finished"),
    PrivatePart(
        f"{_BASE}._submit_batch_to_rollout", '"is_prompt": True, "status": "pending"', "groups to sample again"
    ),
    PrivatePart(f"{_BASE}._reissue_inflight_prompts", '("pending", "running")', "what a resumed run samples again"),
    PrivatePart(
        f"{_BASE}._compute_advantage", 'data.batch["rm_scores"]', "rows carry token advantages as token scores"
    ),
    PrivatePart(f"{_BASE}._compute_advantage", "algorithm.adv_estimator", "our estimator returns them as they are"),
    PrivatePart(
        f"{_BASE}._compute_old_log_prob", "rollout.temperature", "changed for Phase A: its sampling temperature"
    ),
    PrivatePart(f"{_BASE}._update_actor", "actor.ppo_mini_batch_size", "changed for Phase A: its own mini-batch"),
    PrivatePart(f"{_BASE}._update_actor", "rollout.n", "changed for Phase A: veRL multiplies mini-batches by it"),
    PrivatePart(f"{_BASE}.__init__", "self.local_trigger_step", "Phase A runs once a step, not once an update"),
    PrivatePart(f"{_BASE}.__init__", "self.parameter_sync_step", "veRL looks it up under the mode's name, not ours"),
    PrivatePart(f"{_BASE}._rollout_server_managers", "managers", "the engines, to notice a dead one"),
    PrivatePart("verl.workers.rollout.llm_server:LLMServerManager", "self.server_handles", "the same"),
    PrivatePart("verl.experimental.agent_loop.agent_loop:AgentLoopManager", "self.agent_loop_workers", "their death"),
    PrivatePart("verl.trainer.ppo.padding_utils:construct_minimal_padding_template", "is_padding=True", "rows to skip"),
    PrivatePart("verl.trainer.main_ppo:TaskRunnerV1.__ray_metadata__", "", "the class under Ray's decorator"),
    PrivatePart(
        f"{_SAVED}.save_checkpoint", 'f"optim_world_size_{self.world_size}_rank_{self.rank}.pt"', "see `reshard`"
    ),
    PrivatePart(f"{_SAVED}.save_checkpoint", 'f"extra_state_world_size_{self.world_size}_rank_{self.rank}.pt"', "same"),
    PrivatePart(f"{_SAVED}.load_checkpoint", 'f"model_world_size_{self.world_size}_rank_{self.rank}.pt"', "the same"),
    PrivatePart(f"{_SAVED}.save_checkpoint", '"fsdp_config.json"', "the number of ranks that have saved the weights"),
    PrivatePart(
        f"{_FSDP}._init_device_mesh", "self.device_mesh = create_device_mesh", "the mesh to divide weights for"
    ),
    PrivatePart(f"{_FSDP}._build_fsdp_module", '"mesh": fsdp_mesh,', "weights are divided by their rows: no other way"),
    PrivatePart("verl.single_controller.ray.base:create_colocated_worker_cls", "self.worker_dict[key]", "the engine"),
    PrivatePart("verl.workers.engine_workers:ActorRolloutRefWorker", "self.actor: TrainingWorker", "the same"),
    PrivatePart("verl.workers.rollout.base:_ROLLOUT_REGISTRY", "", "the transformers engine; there is no function"),
)
"""The engine's `errored` is vLLM's own, and stands in a process that this environment need not have."""


def found_at(place: str):
    module, _, path = place.partition(":")
    found = import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return found


@pytest.mark.parametrize("place", SIGNATURES)
def test_what_we_override_has_the_signature_that_we_override(place):
    assert str(inspect.signature(found_at(place))) == SIGNATURES[place]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: f"{part.where}: {part.text}")
def test_every_private_part_that_we_touch_is_as_we_know_it(part):
    found = found_at(part.where)
    assert part.reason
    assert not part.text or part.text in inspect.getsource(found)


def test_every_method_that_we_put_in_the_place_of_verls_is_in_the_contract():
    replaced = {name for name, one in vars(StageTrainer).items() if callable(one) and hasattr(PPOTrainer, name)}
    listed = {place.rpartition(".")[2] for place in SIGNATURES if ":PPOTrainer." in place}
    assert replaced - {"__init__"} <= listed


def test_each_mode_is_the_one_trainer_over_verls_mode_of_the_same_name():
    assert list(MODES) == ["rubricem_async", "rubricem_sync", "rubricem_separate"]
    for name, mode in MODES.items():
        assert get_trainer_cls(name).__mro__[1:3] == (StageTrainer, mode)


def test_the_task_runner_is_verls_own_with_our_trainers_imported():
    assert issubclass(TaskRunner, TaskRunnerV1.__ray_metadata__.modified_class)


def test_verl_is_the_version_that_all_this_was_written_for():
    assert importlib.metadata.version("verl") == VERL


def test_a_row_carries_its_advantages_and_the_estimator_returns_them_as_they_are():
    output = CreditedOutput(
        prompt_ids=[1, 2],
        response_ids=[3, 4, 5],
        response_mask=[1, 0, 1],
        token_advantages=[0.5, 0.0, -1.0],
        reward_score=0.0,
        metrics=AgentLoopMetrics(),
    )
    row = output.as_dict()
    assert row["rm_scores"].tolist() == row["advantages"].tolist() == [0.5, 0.0, -1.0]
    assert "token_advantages" not in row
    given = get_adv_estimator_fn(ESTIMATOR)(
        token_level_rewards=row["rm_scores"], response_mask=torch.ones(3), config=None
    )
    assert [one.tolist() for one in given] == [[0.5, 0.0, -1.0]] * 2


def test_nothing_in_verl_trains_a_prompt_that_rows_share_once():
    """Its prefix grouping has a key and a forward pass, which no engine calls: see `_unsupported` in refusals.py.

    Where this fails the key may work, and Phase A need not repeat the prompt of a question's candidates.
    """
    sources = {file: file.read_text(errors="replace") for file in Path(verl.__file__).parent.rglob("*.py")}
    defined = next(file for file, text in sources.items() if "def forward_micro_batch_with_prefix_grouper" in text)
    named = {file for file, text in sources.items() if "prefix_grouper_utils" in text or "PrefixGrouper(" in text}
    assert named <= {defined}
    # What reads the key: the old trainers, which sort their rows by it, and a patch that no one asks for.
    readers = {file.parent.name for file, text in sources.items() if "use_prefix_grouper" in text}
    assert readers.isdisjoint({"v1", "fsdp", "engine", "workers"})
    asked = [file for file, text in sources.items() if "use_prefix_grouper=" in text]
    assert asked == []


def trainer_of(**known):
    trainer = object.__new__(StageTrainer)
    trainer.settings = SimpleNamespace(evicted_limit=0.25)
    trainer.config = SimpleNamespace(data=SimpleNamespace(train_batch_size=8))
    trainer._evicted, trainer._line, trainer.global_steps = 0, {}, 5
    vars(trainer).update(known)
    return trainer


def test_groups_that_verl_evicts_are_replaced_until_a_whole_step_was():
    added = []
    trainer = trainer_of(_add_prompts_to_generate=added.append)
    trainer._replace_evicted(3)
    trainer._replace_evicted(4)
    assert added == [3, 4]
    with pytest.raises(JudgeError, match=r"evicted 8 groups while a step was sampled.*rubricem\.max_age"):
        trainer._replace_evicted(1)


@pytest.fixture
def sampled(monkeypatch):
    """A batch of two groups, one sampled by the newest weights, the other by those of two updates before."""
    rows = [CreditedRow(f"{group}_0_0", group, np.array([0, 3]), version) for group, version in (("a", 4), ("b", 2))]
    monkeypatch.setattr(trainer_module, "read_credited", lambda *_: rows)
    monkeypatch.setattr(trainer_module, "tags_of", lambda batch: {})
    monkeypatch.setattr(trainer_module.ray, "get", lambda call: call)
    report = SimpleNamespace(remote=lambda step, groups: {"lost": 0, "groups": len(groups)})
    return trainer_of(judge_service=SimpleNamespace(report=report))


def test_a_step_reports_the_age_of_its_rollouts_and_the_groups_that_were_evicted(sampled):
    metrics = {EVICTED[0]: 2, EVICTED[1]: 7}
    sampled._report_rollouts(None, metrics)
    # the weights before step 5 are those of step 4
    assert sampled._line["ages"] == {"0": 1, "2": 1}
    assert sampled._line["evicted"] == {"failed": 2, "stale": 7}


def test_too_many_groups_on_which_workers_failed_stop_the_run(sampled):
    with pytest.raises(JudgeError, match=r"failed on 3 groups of a step, more than rubricem\.evicted_limit=0\.25"):
        sampled._report_rollouts(None, {EVICTED[0]: 3})
