"""The whole recipe on veRL: a run that is saved, killed and resumed on two ranks."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from rubricem_agent.learn.checkpoint import find_checkpoint, load_checkpoint
from rubricem_agent.learn.curriculum import Curriculum
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.embed import HashingEmbedder
from rubricem_agent.memory.snapshot import load_snapshot
from rubricem_agent.memory.store import MemoryStore
from rubricem_records.runs.run_log import read_log
from rubricem_viewer.record_reader import RunRecordReader
from rubricem_viewer.report import render_report
from tests.lanes.verl.runs import LIMIT, SMALL, started
from trainers.verl_backend.checkpoint import FOLDER
from trainers.verl_backend.questions import load_training_questions
from trainers.verl_backend.settings import read_section


def kept(folder: Path, step: int):
    return load_checkpoint(find_checkpoint(folder / FOLDER, step=step), step=step)


def bank_of(checkpoint) -> list[str]:
    """The texts that the bank holds."""
    bank = RubricBank(MemoryStore(embedder="hashing-512", dimension=512), HashingEmbedder())
    load_snapshot(bank, checkpoint.path("bank"), step=checkpoint.step)
    return [item.reflection.takeaways for item in bank.items()]


def rubrics_of(checkpoint) -> list[str]:
    """The questions that have rubrics."""
    return list(checkpoint.read_json("judge")["buffer"]["questions"])


@pytest.fixture(scope="module")
def resumed(policy, tmp_path_factory):
    """A SIGKILL after the checkpoint of the second step, and one step more, on two ranks in the place of one."""
    folder = tmp_path_factory.mktemp("resumed")
    changes = (*SMALL, "trainer.save_freq=2")
    with started(folder, policy, *changes, "trainer.total_training_steps=40") as run:
        run.wait(LIMIT, until=lambda run: run.saved >= 2)
        os.killpg(run.process.pid, signal.SIGKILL)
        run.process.wait()
        first, saved = run.steps, run.saved
    changes += ("trainer.n_gpus_per_node=2", "ray_kwargs.ray_init.num_gpus=2")
    with started(folder, policy, *changes, f"trainer.total_training_steps={saved + 1}") as run:
        code = run.wait(LIMIT)
        assert code == 0, run.tail()
        return first, saved, run


def test_a_killed_run_goes_on_at_the_step_of_its_weights(resumed):
    _, saved, run = resumed
    assert [line["step"] for line in run.steps] == list(range(1, saved + 2))


def test_the_resumed_curriculum_is_where_an_unbroken_one_would_be(resumed):
    _, saved, run = resumed
    keys = list(load_training_questions(read_section({"almanac": {}}))[0])
    unbroken = Curriculum(keys, batch_size=2, window=1, rng=np.random.default_rng(0))
    for _ in range(saved + 1):
        next(unbroken)
    assert kept(run.folder, saved + 1).read_json("stream")["curriculum"] == unbroken.state_dict()


def test_watch_merges_and_evaluates_a_saved_step(resumed):
    _, saved, run = resumed
    watched = ["watch", str(run.folder), "--eval", "almanac", "--limit", "1", "--every", str(saved + 1)]
    command = [sys.executable, "-m", "rubricem_agent.cli.main", *watched, "--engine", "local", "--once", "--json"]
    for expected in ([saved + 1], []):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-1_000:]
        assert [line["step"] for line in json.loads(done.stdout)] == expected
    assert [line.benchmark for line in read_log(run.folder).benchmarks] == ["almanac"]


def test_bank_and_rubrics_of_the_checkpoint_are_there_after_the_resume(resumed):
    _, saved, run = resumed
    before, after = kept(run.folder, saved), kept(run.folder, saved + 1)
    assert set(bank_of(before)) <= set(bank_of(after))
    assert set(rubrics_of(before)) <= set(rubrics_of(after))
    assert rubrics_of(before)


def test_reflections_are_trained_on_one_step_after_they_were_launched(resumed):
    _, _, run = resumed
    ages = [age for line in run.steps for age in line["staleness"]]
    assert ages
    assert min(ages) == 1


def test_the_viewer_finds_every_attempt_of_the_killed_and_resumed_run_once(resumed):
    _, saved, run = resumed
    reader = RunRecordReader(run.folder)
    reader.refresh()
    assert [row.id for row in reader.groups] == [f"{step}-{place}" for step in range(1, saved + 2) for place in (0, 1)]
    assert len(reader.table.rows) == 4 * (saved + 1)
    assert any(reader.read_rollout(row).advantages != (0, 0, 0, 0) for row in range(len(reader.table.rows)))
    assert render_report(run.folder).count("<html") == 1


def test_two_ranks_train_on_with_the_weights_of_one_and_a_line_says_so(resumed):
    _, saved, run = resumed
    announced = f"step {saved} was saved by 1 ranks and resumes on 2"
    assert [announced in line for line in run.sentences] == [True]
    before, after = (run.folder / f"global_step_{step}" / "actor" for step in (saved, saved + 1))
    halves = [f"model_world_size_2_rank_{rank}.pt" for rank in (0, 1)]
    assert sorted(path.name for path in after.glob("model_*")) == halves
    divided, (whole,) = local_tensors(before, *halves), local_tensors(before, "model_world_size_1_rank_0.pt")
    assert all(torch.equal(torch.cat([half[name] for half in divided]), whole[name]) for name in whole)


def local_tensors(folder, *names):
    """What each rank has saved of the weights, by name."""
    saved = [torch.load(folder / name, weights_only=False) for name in names]
    return [{name: value.to_local() for name, value in state.items()} for state in saved]
