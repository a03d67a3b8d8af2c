"""A pretrained model on veRL with a real vLLM: two steps, saved, merged, and read by transformers.

RUBRICEM_SMOLLM2 names a folder that `configs/sft_smollm2.yaml` has made.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lanes.verl.runs import ROOT, started
from tests.lanes.verl_vllm.test_run import ENVIRONMENT, PROBABILITY_GAP

MODEL = os.environ.get("RUBRICEM_SMOLLM2", "")
if not MODEL:
    pytest.skip("RUBRICEM_SMOLLM2 names no fine-tuned SmolLM2", allow_module_level=True)

LIMIT = 1_500.0
"""Seconds, of which the start takes two minutes."""
CHANGES = (
    *("actor_rollout_ref.rollout.name=vllm", "+actor_rollout_ref.rollout.enable_sleep_mode=false"),
    *("data.train_batch_size=2", "actor_rollout_ref.actor.ppo_mini_batch_size=2", "actor_rollout_ref.rollout.n=4"),
    *("rubricem.window=1", "rubricem.reflection.num_candidates=2", "rubricem.reflection.new_tokens=128"),
    # All weights at once: vLLM refuses the tied head of a Llama in another part than the embedding.
    "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=640",
    # One attempt at a time, and activations computed again: 16,384 tokens of 49,152 logits took more than 23 GiB.
    *(
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=3200",
        "actor_rollout_ref.model.enable_gradient_checkpointing=true",
    ),
    *("actor_rollout_ref.rollout.max_model_len=3200", "data.max_response_length=2048"),
    *("rubricem.limits.max_tokens=2048", "rubricem.reflection.total_tokens=3072"),
    *("actor_rollout_ref.actor.optim.lr=3e-5", "trainer.total_training_steps=2", "trainer.save_freq=2"),
    "rubricem.time_limits={sync: 300, update: 900, sample: 900}",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with started(tmp_path_factory.mktemp("smollm2"), Path(MODEL), *CHANGES, environment=ENVIRONMENT) as run:
        assert run.wait(LIMIT) == 0, run.tail()
        yield run


def test_two_steps_train_on_what_vllm_has_sampled(run):
    assert [line["lost"] for line in run.steps] == [0, 0]
    assert sum(line["trained_rollouts"] for line in run.steps) > 0
    assert max(run.probability_gaps.values()) < 10 * PROBABILITY_GAP


def test_the_saved_weights_are_merged_into_a_model_that_answers(run):
    watched = ["watch", str(run.folder), "--eval", "almanac", "--limit", "2", "--every", "2"]
    command = [sys.executable, "-m", "rubricem_agent.cli.main", *watched, "--engine", "local", "--once", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-1_000:]
    (line,) = json.loads(done.stdout)
    assert (line["step"], line["benchmark"]) == (2, "almanac")
    assert line["low"] <= line["score"] <= line["high"]
    answered = (run.folder / "watch" / "step-2" / "almanac" / "answers.jsonl").read_text().splitlines()
    endings = [json.loads(answer)["trajectory"]["ending"] for answer in answered]
    assert endings == ["answered", "answered"]
