"""Rows of veRL's batch: no longer than what is trained on, with an advantage for every token."""

import numpy as np
import pytest

from rubricem_agent.learn.samples import Sample
from rubricem_env.domain.errors import JudgeError
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.judge.outage import refuse_outage
from rubricem_records.rollouts.rollout_tokens import RolloutTokens
from rubricem_records.rollouts.rollouts import Rollout
from trainers.verl_backend.rows import OURS, episode_rows, reflection_row


def test_an_outage_stops_the_step_with_the_count_and_the_first_reason():
    refuse_outage(["the judge did not answer"], 5, limit=0.2, way_out="")
    with pytest.raises(JudgeError, match=r"2 of the step's 5 rollouts were lost.*the judge did not answer"):
        refuse_outage(["the judge did not answer", "another reason"], 5, limit=0.2, way_out="")


def rows_of(stages, tokenizer, *, prompt_length=2, teaches=True, window_starts=(0,), opening=None):
    """The id of a token is 100 plus its index, and its advantage a tenth of that; a window begins with 100, 101."""
    logprobs = tuple(-1.0 if stage >= 0 else 0.0 for stage in stages)
    ids = [100 + index for index in range(len(stages))]
    for start in window_starts:
        ids[start : start + prompt_length] = ids[:prompt_length]
    tokens = RolloutTokens(
        ids=tuple(ids),
        stage_ids=stages,
        logprobs=logprobs,
        prompt_length=prompt_length,
        window_starts=window_starts,
    )
    rollout = Rollout(trajectory=Trajectory(question="q", segments=()), policy="p", tokens=tokens)
    advantages = np.arange(len(stages)) / 10 if teaches else None
    return episode_rows(rollout, advantages, group="g", tokenizer=tokenizer, versions=(2, 3), opening=opening)


def row_of(stages, tokenizer, **changes):
    (row,) = rows_of(stages, tokenizer, **changes)
    return row


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


FOLDED = (-1, -1, 0, -1, -1, -1, -1, 1, -1, 1, -1, -1, -1, -1)
"""Three windows, from 0, 4 and 11; in the last one, which failed, nothing was written."""


def test_each_window_of_a_folded_rollout_is_a_row_after_its_own_prompt(tokenizer):
    first, second = rows_of(FOLDED, tokenizer, window_starts=(0, 4, 11))
    assert (first["prompt_ids"], first["response_ids"]) == ([100, 101], [102])
    assert (second["prompt_ids"], second["response_ids"]) == ([100, 101, 106], [107, 108, 109])
    assert second["response_mask"] == [1, 0, 1]
    assert second["response_logprobs"] == [-1.0, 0.0, -1.0]
    assert [row["token_advantages"] for row in (first, second)] == [[0.2], [0.7, 0.8, 0.9]]
    for row, stages in ((first, [0]), (second, [1, -1, 1])):
        assert row["extra_fields"][OURS]["stages"].tolist() == stages
        assert row["extra_fields"][OURS]["group"] == "g"
        assert (row["extra_fields"]["min_global_steps"], row["extra_fields"]["max_global_steps"]) == (2, 3)


def test_every_window_is_trained_on_after_the_opening_without_lessons(tokenizer):
    rows = rows_of(FOLDED, tokenizer, window_starts=(0, 4, 11), opening=[5])
    assert [row["prompt_ids"] for row in rows] == [[5], [5, 106]]


def test_a_folded_rollout_that_teaches_nothing_is_one_masked_row(tokenizer):
    assert row_of(FOLDED, tokenizer, window_starts=(0, 4, 11), teaches=False)["response_mask"] == [0]


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
