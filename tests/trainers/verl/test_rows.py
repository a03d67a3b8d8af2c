"""Rows of veRL's batch: no longer than what is trained on, with the local trainer's advantages token by token."""

import numpy as np
import pytest

from rubricem_agent.learn.credit import PAPER_MATRIX, CreditSettings
from rubricem_agent.learn.samples import Sample, task_samples
from rubricem_agent.rollout.rollout import Rollout
from rubricem_agent.rollout.tokens import RolloutTokens
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import JudgeError
from rubricem_env.domain.judgement import Judgement, StageScore, Unscored
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.judge.scoring import GroupJudgement, RolloutJudgement, group_scores
from trainers.verl_backend.rows import (
    OURS,
    RolloutScores,
    credit_rows,
    episode_row,
    reflection_row,
    refuse_outage,
    token_advantages,
)

RNG = np.random.default_rng(3)
FAILED = Unscored(reason="judge_failed")


def rollout(length: int) -> Rollout:
    stages = (-1, -1, *sorted(RNG.integers(0, 4, length).tolist()), -1, 3)
    logprobs = tuple(-1.0 if stage >= 0 else 0.0 for stage in stages)
    tokens = RolloutTokens(ids=tuple(range(len(stages))), stage_ids=stages, logprobs=logprobs, prompt_length=2)
    return Rollout(trajectory=Trajectory(question="q", segments=()), policy="p", tokens=tokens)


def judgement(*, fails: bool = False) -> Judgement:
    outcomes = {stage: FAILED if fails else StageScore(score=float(RNG.random())) for stage in STAGES}
    return Judgement.of(outcomes)


def judged(group) -> GroupJudgement:
    rollouts = tuple(RolloutJudgement(judgement=one) for one in group)
    return GroupJudgement(query_key="k", step=1, fingerprint="f", rubrics=(), rollouts=rollouts)


def scored_row(one: Rollout, scores, *, valid: bool, tokenizer, scored=(True,) * 4):
    scores = RolloutScores(tuple(scores), (None,) * 4, is_valid=valid, scored=tuple(scored))
    return episode_row(one, scores, tokenizer=tokenizer, versions=(0, 0), encounter="new")


@pytest.mark.parametrize("mode", ["stages", "terminal", "srar", "draco"])
def test_token_advantages_equal_the_local_trainers_on_the_same_groups(mode, tokenizer):
    groups = [[rollout(6), rollout(9), rollout(4)], [rollout(5), rollout(7), rollout(3)]]
    judgements = [[judgement(), judgement(), judgement()], [judgement(), judgement(fails=True), judgement()]]
    local, _ = task_samples(
        groups, [judged(group) for group in judgements], settings=CreditSettings(credit=mode), version=0
    )

    scored = [group_scores(group) for group in judgements]
    rows = [
        scored_row(one, scores[index], valid=bool(valid[index]), tokenizer=tokenizer, scored=given[index])
        for group, (scores, valid, given) in zip(groups, scored, strict=True)
        for index, one in enumerate(group)
    ]
    ours = [row["extra_fields"][OURS] for row in rows]
    credited = credit_rows(ours, ["a"] * 3 + ["b"] * 3, mode=mode, matrix=PAPER_MATRIX)
    spread = [token_advantages(a, one.stage_ids) for a, one in zip(credited.advantages, ours, strict=True)]
    kept = [advantages for advantages, teaches in zip(spread, credited.trainable, strict=True) if teaches]

    assert len(kept) == len(local) == 5  # the rollout that the judge failed on is left out
    for verl, sample in zip(kept, local, strict=True):
        assert np.array_equal(verl, sample.advantages[2:])  # the prompt's two tokens are no part of a response


def test_the_matrix_of_the_config_is_the_one_that_is_used(tokenizer):
    identity = np.eye(4)
    rows = [
        scored_row(rollout(4), scores, valid=True, tokenizer=tokenizer)["extra_fields"][OURS]
        for scores in ([0.5, 0.5, 0.5, 1.0], [0.5, 0.5, 0.5, 0.0])
    ]
    # under the identity only the answer differs; under the paper's matrix its score reaches back to the plan
    assert np.allclose(credit_rows(rows, ["a", "a"], mode="stages", matrix=identity).advantages[0], [0, 0, 0, 1])
    assert np.allclose(credit_rows(rows, ["a", "a"], mode="stages", matrix=PAPER_MATRIX).advantages[0], [1, 1, 1, 1])


def test_an_outage_stops_the_step_with_the_count_and_the_first_reason(tokenizer):
    good = scored_row(rollout(3), [1.0] * 4, valid=True, tokenizer=tokenizer)["extra_fields"][OURS]
    lost = RolloutScores((0.0,) * 4, (None,) * 4, is_valid=False, failure="the judge did not answer")
    bad = episode_row(rollout(3), lost, tokenizer=tokenizer, versions=(0, 0), encounter="new")["extra_fields"][OURS]
    refuse_outage([good] * 4 + [bad], 0.2)
    with pytest.raises(JudgeError, match=r"2 of the step's 5 rollouts were lost.*the judge did not answer"):
        refuse_outage([good] * 3 + [bad] * 2, 0.2)


ONES = RolloutScores((1.0,) * 4, (None,) * 4, is_valid=True)


def row_of(stages, tokenizer, *, prompt_length=2):
    logprobs = tuple(-1.0 if stage >= 0 else 0.0 for stage in stages)
    tokens = RolloutTokens(
        ids=tuple(range(100, 100 + len(stages))), stage_ids=stages, logprobs=logprobs, prompt_length=prompt_length
    )
    rollout = Rollout(trajectory=Trajectory(question="q", segments=()), policy="p", tokens=tokens)
    return episode_row(rollout, ONES, tokenizer=tokenizer, versions=(0, 0), encounter="new")


def test_what_a_tool_answers_after_the_last_drawn_token_is_left_out(tokenizer):
    row = row_of((-1, -1, 0, 0, -1, -1, 1, *(-1,) * 500), tokenizer)
    assert row["prompt_ids"] == [100, 101]
    assert row["response_ids"] == [102, 103, 104, 105, 106]
    assert row["response_mask"] == [1, 1, 0, 0, 1]
    assert row["response_logprobs"] == [-1.0, -1.0, 0.0, 0.0, -1.0]
    assert row["extra_fields"][OURS].stage_ids.tolist() == [0, 0, -1, -1, 1]


def test_a_prompt_too_long_to_be_answered_leaves_a_row_of_two_tokens(tokenizer):
    row = row_of((-1,) * 30_000, tokenizer, prompt_length=30_000)
    assert (len(row["prompt_ids"]), row["response_mask"], row["response_logprobs"]) == (1, [0], [0.0])


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
    assert (tag["prompt_len"], tag["seq_len"], tag["min_global_steps"]) == (2, 5, 4)
