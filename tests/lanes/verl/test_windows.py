"""Rollouts of several windows on veRL: a row for each, one loss, and a run that is resumed to equal numbers."""

import os
import signal
from types import SimpleNamespace

import pytest
import torch
from omegaconf import OmegaConf
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.core_algos import agg_loss

from rubricem_viewer.record_reader import RunRecordReader
from tests.lanes.verl.runs import LIMIT, SMALL, started
from trainers.verl_backend.trainer import TASKS, StageTrainer

CHANGES = (
    *(*SMALL, "trainer.save_freq=1", "actor_rollout_ref.rollout.n=4", "rubricem.meta_policy=false"),
    *("rubricem.context={fold_at: 300, fold_to: 220, keep: 1}", "++rubricem.almanac.knobs.noise=0.5"),
    "trainer.total_training_steps=2",
)
"""Eight rollouts a step. Only those of the second step are folded."""


@pytest.fixture(scope="module")
def unbroken(policy, tmp_path_factory):
    with started(tmp_path_factory.mktemp("unbroken"), policy, *CHANGES) as run:
        assert run.wait(LIMIT) == 0, run.tail()
        return run


@pytest.fixture(scope="module")
def resumed(policy, tmp_path_factory):
    """A SIGKILL after the checkpoint of the first step, and the second one after it."""
    folder = tmp_path_factory.mktemp("resumed")
    with started(folder, policy, *CHANGES) as run:
        run.wait(LIMIT, until=lambda run: run.saved >= 1)
        os.killpg(run.process.pid, signal.SIGKILL)
        run.process.wait()
        assert run.saved == 1
    with started(folder, policy, *CHANGES) as run:
        assert run.wait(LIMIT) == 0, run.tail()
        return run


def test_every_rollout_of_a_folded_step_counts_once_and_its_windows_are_one_update(unbroken):
    plain, folded = unbroken.steps
    assert "windows" not in plain["rollout_stats"]
    assert folded["rollout_stats"]["windows"] > 1
    assert 0 < folded["rollout_stats"]["prompts_again"] < 1
    for line in (plain, folded):
        assert line["ages"] == {"0": 8}
        assert line["task"]["tokens"] == line["rollout_stats"]["policy_tokens"]
    # Several updates would have moved the weights before the last: the ratio would not be 1 throughout.
    assert unbroken.told("actor/ppo_kl") == pytest.approx([0.0, 0.0], abs=1e-6)


def test_the_trainer_recomputes_every_window_as_the_engine_drew_it(unbroken):
    assert len(unbroken.probability_gaps) == 2
    assert max(unbroken.probability_gaps.values()) < 1e-4


def test_a_run_that_is_killed_and_resumed_has_the_same_numbers_and_weights(unbroken, resumed):
    assert [line["step"] for line in resumed.steps] == [1, 2]
    for whole, again in zip(unbroken.steps, resumed.steps, strict=True):
        for name in ("judged", "true", "spread", "rollout_stats", "ages", "trained_rollouts", "curriculum"):
            assert again[name] == whole[name], name
        for name in ("loss", "grad_norm", "tokens"):
            assert again["task"][name] == pytest.approx(whole["task"][name], rel=1e-3)
    left, right = (weights(run) for run in (unbroken, resumed))
    assert all(torch.allclose(left[name], right[name], atol=1e-5) for name in left)


def weights(run):
    file = run.folder / "global_step_2" / "actor" / "model_world_size_1_rank_0.pt"
    return {name: value.to_local() for name, value in torch.load(file, weights_only=False).items()}


def test_the_record_has_every_attempt_once_with_its_windows(resumed):
    reader = RunRecordReader(resumed.folder)
    reader.refresh()
    entries = [reader.read_rollout(row) for row in range(len(reader.table.rows))]
    assert len(entries) == 16
    windows = [len(entry.tokens.windows()) for entry in entries]
    assert windows[:8] == [1] * 8
    assert max(windows[8:]) > 1


def loss_of(rows, mode, *, rollouts):
    """VeRL's mean of per-token losses in rows, of so many rollouts; the tokens are counted over all rows."""
    losses = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones(len(row)) for row in rows], batch_first=True)
    tokens = sum(map(len, rows))
    return agg_loss(losses, mask, mode, batch_num_tokens=tokens, global_batch_size=rollouts).item()


@pytest.mark.parametrize(("mode", "expected"), [("token-mean", 12 / 6), ("seq-mean-token-sum", 12 / 2)])
def test_windows_add_up_to_what_one_text_of_the_same_tokens_is(mode, expected):
    # Two rollouts with losses 1 + 2 + 3 + 4 and 2 + 0; the first in one row, or in three windows.
    other = [2.0, 0.0]
    assert loss_of([[1.0, 2.0, 3.0, 4.0], other], mode, rollouts=2) == pytest.approx(expected)
    assert loss_of([[1.0], [2.0, 3.0], [4.0], other], mode, rollouts=2) == pytest.approx(expected)


class Workers:
    """Training workers that remember what an update was told."""

    def __init__(self):
        self.told = []
        self._dispatch_info = {"actor": [0]}

    def update_actor(self, batch):
        self.told.append(dict(batch.extra_info))
        return {"metrics": {"mfu": [0.0]}}


@pytest.mark.parametrize(
    ("windows", "rows", "update"),
    [
        ((1, 1, 1, 1), 4, {"mini_batch_size": 4, "global_batch_size": 4}),
        ((3, 1, 2, 1), 7, {"mini_batch_size": 7, "global_batch_size": 4}),
    ],
)
def test_an_update_takes_all_rows_of_its_rollouts_and_divides_by_the_rollouts(windows, rows, update):
    actor = {"ppo_mini_batch_size": 2, "ppo_epochs": 1, "data_loader_seed": 0, "shuffle": False}
    actor |= {"calculate_entropy": False, "entropy_coeff": 0.0, "use_dynamic_bsz": True}
    config = OmegaConf.create(
        {
            "trainer": {"critic_warmup": 0, "nnodes": 1, "n_gpus_per_node": 1},
            "actor_rollout_ref": {
                "actor": {**actor, "ulysses_sequence_parallel_size": 1, "ppo_micro_batch_size_per_gpu": None},
                "rollout": {"n": 2, "temperature": 1.0, "log_prob_micro_batch_size_per_gpu": None},
                "ref": {"log_prob_micro_batch_size_per_gpu": None},
            },
        }
    )
    keys = [f"g_{rollout}_{window}" for rollout, count in enumerate(windows) for window in range(count)]
    batch = KVBatchMeta(keys=keys, tags=[{"seq_len": 9}] * len(keys), partition_id=TASKS)
    workers = Workers()
    trainer = object.__new__(StageTrainer)
    vars(trainer).update(
        config=config,
        actor_rollout_wg=workers,
        use_critic=False,
        global_steps=1,
        tokenizer=SimpleNamespace(eos_token_id=0),
        _teaches=True,
        _update_rows=None,
        _update_within=lambda what, call: call(),
    )
    balanced = trainer._balance_batch(batch, {})
    trainer._update_actor(balanced, {})
    assert len(balanced) == rows
    (told,) = workers.told
    assert {name: told[name] for name in update} == update
    assert (config.actor_rollout_ref.rollout.n, config.actor_rollout_ref.actor.ppo_mini_batch_size) == (2, 2)
    assert trainer.actor_rollout_wg is workers
