"""The whole recipe on veRL with a real vLLM: what it samples is what is trained, under the trainer's own weights."""

from pathlib import Path

import pytest

from rubricem_agent.policy.base import model_folder
from tests.lanes.verl.runs import started

LIMIT = 540.0
"""Seconds: patience for a busy machine. A start of vLLM that fails hangs, so the run is given up and its log shown."""
STEPS = 3
CHANGES = (
    *("actor_rollout_ref.rollout.name=vllm", "+actor_rollout_ref.rollout.enable_sleep_mode=false"),
    *("data.train_batch_size=2", "actor_rollout_ref.actor.ppo_mini_batch_size=2", "actor_rollout_ref.rollout.n=4"),
    *("rubricem.window=1", "rubricem.reflection.num_candidates=2", "rubricem.reflection.new_tokens=128"),
    # So large that the weights of one step would not pass for those of another.
    *("actor_rollout_ref.actor.optim.lr=5e-4", f"trainer.total_training_steps={STEPS}", "trainer.save_freq=-1"),
    "rubricem.time_limits={sync: 120, update: 120, sample: 240}",
)
ENVIRONMENT = {
    # Without it the first start compiles for a minute.
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}
PROBABILITY_GAP = 1e-3
"""Between vLLM's and the trainer's probability of a token: what two implementations in float32 may differ by."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vllm")
    with started(folder, model_folder(Path("tiny")), *CHANGES, environment=ENVIRONMENT) as run:
        assert run.wait(LIMIT) == 0, run.tail()
        yield run


def test_all_steps_are_taken_and_no_rollout_is_lost(run):
    assert [line["step"] for line in run.steps] == list(range(1, STEPS + 1))
    assert [line["lost"] for line in run.steps] == [0] * STEPS
    assert sum(line["trained_rollouts"] for line in run.steps) > 0


def test_vllm_samples_with_the_weights_that_the_trainer_has_just_made(run):
    assert len(run.told("training/rollout_probs_diff_max")) == STEPS
    assert max(run.probability_gaps) > 1
    assert max(run.probability_gaps.values()) < PROBABILITY_GAP
    # And these are no longer the first weights.
    assert max(run.divergences) > PROBABILITY_GAP


def test_reflections_are_drawn_from_vllm_and_trained_on_one_step_late(run):
    assert [age for line in run.steps for age in line["staleness"]]
    assert sum(line["reflections"] for line in run.steps) > 0
