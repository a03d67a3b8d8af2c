"""Rollouts of several windows on veRL: a row for each, one loss, and a run that is resumed to equal numbers."""

import os
import signal

import pytest

from tests.lanes.verl.runs import LIMIT, SMALL, started

# Nearly greedy, so that what is sampled does not depend on the order in which requests come. The judge's noise makes
# attempts differ that are alike.
CHANGES = (
    *(*SMALL, "trainer.save_freq=1", "rubricem.meta_policy=false", "actor_rollout_ref.rollout.temperature=0.05"),
    *("rubricem.context={fold_at: 420, fold_to: 320, keep: 1}", "++rubricem.almanac.knobs.noise=0.5"),
)


@pytest.fixture(scope="module")
def unbroken(policy, tmp_path_factory):
    with started(tmp_path_factory.mktemp("unbroken"), policy, *CHANGES, "trainer.total_training_steps=2") as run:
        assert run.wait(LIMIT) == 0, run.tail()
        return run


@pytest.fixture(scope="module")
def resumed(policy, tmp_path_factory):
    """A SIGKILL after the checkpoint of the first step, and the second one after it."""
    folder = tmp_path_factory.mktemp("resumed")
    with started(folder, policy, *CHANGES, "trainer.total_training_steps=40") as run:
        run.wait(LIMIT, until=lambda run: run.saved >= 1)
        os.killpg(run.process.pid, signal.SIGKILL)
        run.process.wait()
        assert run.saved == 1
    with started(folder, policy, *CHANGES, "trainer.total_training_steps=2") as run:
        assert run.wait(LIMIT) == 0, run.tail()
        return run
