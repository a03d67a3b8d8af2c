"""The mode in which sampling and training share no device: weights go over, and what is sampled is what is trained."""

import pytest

from tests.lanes.verl.runs import LIMIT, started

STEPS = 3
CHANGES = (
    *("trainer.v1.trainer_mode=rubricem_separate", "trainer.v1.separate_async.num_warmup_batches=0"),
    *("data.train_batch_size=2", "actor_rollout_ref.actor.ppo_mini_batch_size=2", "actor_rollout_ref.rollout.n=4"),
    *("rubricem.window=1", "rubricem.reflection.num_candidates=2"),
    # So large that the weights of one step would not pass for those of another.
    *("actor_rollout_ref.actor.optim.lr=5e-4", f"trainer.total_training_steps={STEPS}", "trainer.save_freq=-1"),
)
PROBABILITY_GAP = 1e-3
"""Between the engine's and the trainer's probability of a token."""


@pytest.fixture(scope="module")
def run(policy, tmp_path_factory):
    with started(tmp_path_factory.mktemp("separate"), policy, *CHANGES) as run:
        assert run.wait(LIMIT) == 0, run.tail()
        yield run


def test_all_steps_are_taken_and_no_rollout_is_lost(run):
    assert [line["step"] for line in run.steps] == list(range(1, STEPS + 1))
    assert [line["lost"] for line in run.steps] == [0] * STEPS


def test_the_engine_samples_with_the_weights_that_have_come_over(run):
    assert max(run.probability_gaps) > 1
    assert max(run.probability_gaps.values()) < PROBABILITY_GAP
    # And these are no longer the first weights.
    assert max(run.divergences) > PROBABILITY_GAP
