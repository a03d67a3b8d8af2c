"""The whole recipe on veRL: a run that is saved, killed and resumed; a run on two ranks."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from rubricem_agent.learn.checkpoint import find_checkpoint, load_checkpoint
from rubricem_agent.learn.curriculum import Curriculum
from tests.lanes.verl.runs import started
from trainers.verl_backend.keeping import FOLDER
from trainers.verl_backend.questions import load_training_questions
from trainers.verl_backend.settings import read_section

LIMIT = 280.0
SMALL = (
    *("data.train_batch_size=2", "actor_rollout_ref.actor.ppo_mini_batch_size=2", "actor_rollout_ref.rollout.n=2"),
    *("rubricem.limits.max_tokens=400", "rubricem.max_turn_tokens=96", "rubricem.window=1"),
    *("rubricem.reflection.num_candidates=2", "rubricem.reflection.new_tokens=64"),
)


def kept(folder: Path, step: int):
    return load_checkpoint(find_checkpoint(folder / FOLDER, step=step), step=step)


@pytest.fixture(scope="module")
def resumed(policy, tmp_path_factory):
    """Four steps, with a SIGKILL after the checkpoint of the second."""
    folder = tmp_path_factory.mktemp("resumed")
    changes = (*SMALL, "trainer.save_freq=2")
    with started(folder, policy, *changes, "trainer.total_training_steps=40") as run:
        run.wait(LIMIT, until=lambda run: run.saved >= 2)
        os.killpg(run.process.pid, signal.SIGKILL)
        run.process.wait()
        first, saved = run.steps, run.saved
    with started(folder, policy, *changes, f"trainer.total_training_steps={saved + 2}") as run:
        code = run.wait(LIMIT)
        assert code == 0, run.tail()
        return first, saved, run


def test_a_killed_run_goes_on_at_the_step_of_its_weights(resumed):
    _, saved, run = resumed
    assert [line["step"] for line in run.steps] == list(range(1, saved + 3))


def test_the_resumed_curriculum_is_where_an_unbroken_one_would_be(resumed):
    _, saved, run = resumed
    keys = list(load_training_questions(read_section({"almanac": {}})).queries)
    unbroken = Curriculum(keys, batch_size=2, window=1, rng=np.random.default_rng(0))
    for _ in range(saved + 2):
        next(unbroken)
    assert kept(run.folder, saved + 2).read_json("stream")["curriculum"] == unbroken.state_dict()


def test_reflections_are_trained_on_one_step_after_they_were_launched(resumed):
    _, _, run = resumed
    ages = [age for line in run.steps for age in line["staleness"]]
    assert ages
    assert min(ages) == 1
