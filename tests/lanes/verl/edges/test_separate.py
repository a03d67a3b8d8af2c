"""Sampling and training on devices of their own, a step ahead: killed, and gone on from the last checkpoint."""

import os
import signal

import numpy as np
import pytest

from rubricem_agent.learn.checkpoint import find_checkpoint, load_checkpoint
from rubricem_agent.learn.curriculum import Curriculum
from tests.lanes.verl.runs import LIMIT, SMALL, started
from trainers.verl_backend.checkpoint import FOLDER
from trainers.verl_backend.questions import load_training_questions
from trainers.verl_backend.settings import read_section

AHEAD = 1
CHANGES = (
    *SMALL,
    *("rubricem.window=2", "trainer.v1.trainer_mode=rubricem_separate", "trainer.save_freq=1"),
    f"trainer.v1.separate_async.num_warmup_batches={AHEAD}",
)


@pytest.fixture(scope="module")
def resumed(policy, tmp_path_factory):
    """A SIGKILL after the checkpoint of the second step, and two steps more."""
    folder = tmp_path_factory.mktemp("separate")
    with started(folder, policy, *CHANGES, "trainer.total_training_steps=40") as run:
        assert run.wait(LIMIT, until=lambda run: run.saved >= 2) is None, run.tail()
        os.killpg(run.process.pid, signal.SIGKILL)
        run.process.wait()
        last = run.saved + 2
    with started(folder, policy, *CHANGES, f"trainer.total_training_steps={last}") as run:
        assert run.wait(LIMIT) == 0, run.tail()
        return last, run


def test_all_steps_are_there_and_no_rollout_is_lost(resumed):
    last, run = resumed
    assert [line["step"] for line in run.steps] == list(range(1, last + 1))
    assert [line["lost"] for line in run.steps] == [0] * last


def test_the_curriculum_is_where_an_unbroken_run_would_have_it_a_step_ahead(resumed):
    last, run = resumed
    keys = list(load_training_questions(read_section({"almanac": {}}))[0])
    unbroken = Curriculum(keys, batch_size=2, window=2, rng=np.random.default_rng(0))
    for _ in range(last + AHEAD):
        next(unbroken)
    kept = load_checkpoint(find_checkpoint(run.folder / FOLDER, step=last), step=last).read_json("stream")
    assert kept == {"curriculum": unbroken.state_dict(), "waiting": []}


def test_reflections_are_trained_on(resumed):
    _, run = resumed
    assert [age for line in run.steps for age in line["staleness"]]
