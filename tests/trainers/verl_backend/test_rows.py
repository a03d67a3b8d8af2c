"""Rows of veRL's batch: no longer than what is trained on, with an advantage for every token."""

import numpy as np
import pytest

from rubricem_agent.learn.samples import Sample
from rubricem_env.domain.errors import JudgeError
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.judge.outage import refuse_outage
from rubricem_records.rollouts.rollout_tokens import RolloutTokens
from rubricem_records.rollouts.rollouts import Rollout
from trainers.verl_backend.rows import OURS, episode_row, reflection_row


def test_an_outage_stops_the_step_with_the_count_and_the_first_reason():
    refuse_outage(["the judge did not answer"], 5, limit=0.2, way_out="")
    with pytest.raises(JudgeError, match=r"2 of the step's 5 rollouts were lost.*the judge did not answer"):
        refuse_outage(["the judge did not answer", "another reason"], 5, limit=0.2, way_out="")


def row_of(stages, tokenizer, *, prompt_length=2, teaches=True):
    """The advantage of a token is a tenth of its index."""
    logprobs = tuple(-1.0 if stage >= 0 else 0.0 for stage in stages)
    tokens = RolloutTokens(
        ids=tuple(range(100, 100 + len(stages))), stage_ids=stages, logprobs=logprobs, prompt_length=prompt_length
    )
    rollout = Rollout(trajectory=Trajectory(question="q", segments=()), policy="p", tokens=tokens)
    advantages = np.arange(len(stages)) / 10 if teaches else None
    return episode_row(rollout, advantages, group="g", tokenizer=tokenizer, versions=(0, 0))


def test_what_a_tool_answers_after_the_last_drawn_token_is_left_out(tokenizer):
    row = row_of((-1, -1, 0, 0, -1, -1, 1, *(-1,) * 500), tokenizer)
    assert row["prompt_ids"] == [100, 101]
    assert row["response_ids"] == [102, 103, 104, 105, 106]
    assert row["response_mask"] == [1, 1, 0, 0, 1]
    assert row["response_logprobs"] == [-1.0, -1.0, 0.0, 0.0, -1.0]
    assert row["token_advantages"] == [0.2, 0.3, 0.4, 0.5, 0.6]
    assert row["extra_fields"][OURS]["stages"].tolist() == [0, 0, -1, -1, 1]


def test_a_rollout_that_teaches_nothing_is_a_masked_row_of_two_tokens(tokenizer):
    row = row_of((-1,) * 20_000 + (0,) * 10_000, tokenizer, prompt_length=20_000, teaches=False)
    assert (len(row["prompt_ids"]), row["response_mask"], row["response_logprobs"]) == (1, [0], [0.0])
    assert row["token_advantages"] == [0.0]


SAMPLE = Sample(
    token_ids=[7, 7, 1, 2, 3],
    stage_ids=[-1, -1, 0, 0, 0],
    advantages=np.array([0, 0, 1.5, 1.5, 1.5]),
    rollout_logprobs=[0, 0, -0.1, -0.2, -0.3],
    temperature=0.7,
    policy_version=4,
)


def test_a_reflection_is_split_where_the_policy_begins_to_write():
    fields, tag = reflection_row(SAMPLE, uid="u", step=5)
    assert fields["prompts"].tolist() == [7, 7]
    assert fields["responses"].tolist() == [1, 2, 3]
    assert fields["response_mask"].tolist() == [1, 1, 1]
    assert np.allclose(fields["rollout_log_probs"], [-0.1, -0.2, -0.3])
    assert fields["rm_scores"].tolist() == [1.5, 1.5, 1.5]
    assert (tag["prompt_len"], tag["seq_len"], tag["min_global_steps"]) == (2, 5, 4)
