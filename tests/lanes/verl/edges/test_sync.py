"""In the synchronous mode nothing is sampled while the weights change, and a step waits for its reflections."""

from tests.lanes.verl.runs import LIMIT, SMALL, started


def test_the_synchronous_mode_trains_and_leaves_no_reflection_pending(policy, tmp_path):
    changes = ("trainer.v1.trainer_mode=rubricem_sync", "trainer.total_training_steps=2", "trainer.save_freq=-1")
    with started(tmp_path, policy, *SMALL, *changes) as run:
        assert run.wait(LIMIT) == 0, run.tail()
        assert [line["step"] for line in run.steps] == [1, 2]
        assert [line["pending_reflections"] for line in run.steps] == [0, 0]
        # Those of the first step had all ended when it did.
        assert set(run.steps[1]["staleness"]) == {1}
