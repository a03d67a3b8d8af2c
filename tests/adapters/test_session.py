"""What the adapters share: sessions, groups, tokens of attempts."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from docs.adapters.tutor import tutored_query
from rubricem_agent.adapters.credit import (
    completion_of,
    group_advantages,
    group_by_query,
    policy_runs,
    refuse_retokenised,
    stage_advantages,
    tokens_of,
)
from rubricem_agent.learn.credit import assign_credit
from rubricem_agent.learn.padding import pad_rows
from rubricem_env.adapters.session import EpisodeSession, turn_rewards, turns_of_stage
from rubricem_env.domain.base import STAGES, Stage
from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_env.domain.judgement import Judgement, StageScore, Unscored
from rubricem_env.domain.trajectory import Ending
from rubricem_env.env.rewards import ScoreEach
from rubricem_env.env.spec import make_env_spec
from rubricem_records.rollouts.rollout_tokens import NO_STAGE, RolloutTokens
from tests.adapters.golden_group import tutor

SCORES = {Stage.PLAN: 0.5, Stage.RESEARCH: 0.25, Stage.REVIEW: 0.125, Stage.ANSWER: 1.0}
SCORER = ScoreEach(lambda trajectory: Judgement.of({stage: StageScore(score=SCORES[stage]) for stage in STAGES}))


async def play(env_spec):
    session, write = EpisodeSession(env_spec, tutored_query(), seed=0), tutor(0)
    steps = [await session.step(write(session.prompt))]
    while not steps[-1].is_over:
        steps.append(await session.step(write(steps[-1].observation)))
    return session, steps


async def test_stagewise_the_plan_is_paid_at_once_and_the_rest_at_the_end():
    _, steps = await play(make_env_spec(reward="stagewise", scorer=SCORER))
    assert [step.reward for step in steps] == [0.5, 0, 0, 1.375]


async def test_the_whole_vector_is_told_at_the_end_whatever_is_paid():
    session, steps = await play(make_env_spec(reward="answer", scorer=SCORER))
    told = steps[-1].info
    assert [told[f"score_{stage!s}"] for stage in STAGES] == [0.5, 0.25, 0.125, 1.0]
    assert (steps[-1].reward, steps[-1].terminated) == (1.0, True)
    assert "score_plan" not in steps[0].info
    assert session.is_over


async def test_without_a_scorer_nothing_is_paid_and_nothing_is_told():
    session, steps = await play(make_env_spec())
    assert {step.reward for step in steps} == {0.0}
    assert session.judgement is None
    assert not any(name.startswith("score_") for name in steps[-1].info)


async def test_a_finished_episode_is_not_stepped_on():
    session, _ = await play(make_env_spec())
    with pytest.raises(UsageError, match="start another"):
        await session.step("more")


async def test_an_abandoned_episode_says_so_and_a_finished_one_keeps_its_ending():
    session = EpisodeSession(make_env_spec(), tutored_query())
    session.abandon()
    assert session.trajectory.ending is Ending.ABANDONED
    done, _ = await play(make_env_spec())
    done.abandon()
    assert done.trajectory.ending is Ending.ANSWERED


def test_an_unknown_key_and_a_reward_without_scorer_are_refused():
    with pytest.raises(UsageError, match="names none of the"):
        make_env_spec().query("nothing")
    with pytest.raises(ConfigError, match="needs a scorer"):
        make_env_spec(reward="answer")


async def test_turn_rewards_stand_where_stages_end_and_absent_scores_add_nothing():
    session, steps = await play(make_env_spec(reward="answer", scorer=SCORER))
    # Plan in turn 1; research ends in turn 3; review and answer in turn 4: 0.125 + 1.
    assert turn_rewards(session.trajectory, session.judgement) == [0.5, None, 0.25, 1.125]
    partial = Judgement.of({Stage.ANSWER: StageScore(score=0.0)})
    assert turn_rewards(session.trajectory, partial) == [None, None, None, 0.0]
    assert len(steps) == 4


async def test_a_turn_that_reviews_and_answers_belongs_to_both_stages():
    session, _ = await play(make_env_spec())
    turns = {str(stage): turns_of_stage(session.trajectory, stage) for stage in STAGES}
    # The tutor plans and calls in its first turn, and reviews and answers in its fourth.
    assert turns == {"plan": {0}, "research": {0, 1, 2}, "review": {3}, "answer": {3}}


FULL = Judgement.of({stage: StageScore(score=1.0) for stage in STAGES})
EMPTY = Judgement.of({stage: StageScore(score=0.0) for stage in STAGES})
LOST = Judgement.of({stage: Unscored(reason="judge_failed") for stage in STAGES})


def test_indices_of_a_question_belong_together_wherever_they_stand():
    assert group_by_query(["a", "b", "a", "b"], 2) == [[0, 2], [1, 3]]


def test_whole_groups_are_silent_also_where_a_question_comes_twice():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        group_by_query(["a"] * 4 + ["b"] * 2, 2)


def test_a_group_cut_short_is_said_with_the_way_out():
    with pytest.warns(UserWarning, match=r"1 of 2 groups are incomplete: the first has 1 attempts instead of 2"):
        group_by_query(["a", "a", "b"], 2)


def test_rows_are_padded_with_no_stage():
    assert pad_rows([[0, 1], [2]], NO_STAGE, dtype=np.int8).tolist() == [[0, 1], [2, -1]]
    assert pad_rows([], NO_STAGE, dtype=np.int8).shape == (0, 0)


@pytest.mark.parametrize(("held", "place"), [([1, 9, 3], 1), ([1, 2], 2), ([1, 2, 3, 4], 3)])
def test_other_tokens_are_found_with_row_and_place(held, place):
    with pytest.raises(UsageError, match=rf"X holds other tokens .* row 1 differs from token {place} on"):
        refuse_retokenised([[5], [1, 2, 3]], [[5], held], trainer="X")


def test_the_same_tokens_pass():
    refuse_retokenised([[1, 2]], [[1, 2]], trainer="X")


def advantages(judgements, *, valid=None, groups=None):
    count = len(judgements)
    stage_ids = pad_rows([[-1, 0, 1, 2, 3]] * count, NO_STAGE, dtype=np.int8)
    return stage_advantages(
        judgements, groups=groups or [0] * count, valid=valid or [True] * count, stage_ids=stage_ids
    )


def test_stage_advantages_are_the_agents_credit_token_by_token():
    # Returns (2.8, 2.2, 1.8, 1.0) against zeros: each stage is one deviation above and below its mean.
    found = advantages([FULL, EMPTY])
    assert found.tolist() == [[0, *[pytest.approx(1.0)] * 4], [0, *[pytest.approx(-1.0)] * 4]]
    assert found[:, 1:] == pytest.approx(assign_credit([[1.0] * 4, [0.0] * 4]).advantages)


def test_a_rollout_that_the_infrastructure_ended_or_no_judge_scored_earns_nothing_and_counts_for_nothing():
    whole = advantages([FULL, EMPTY])
    for lost in (advantages([FULL, EMPTY, FULL], valid=[True, True, False]), advantages([FULL, EMPTY, LOST])):
        assert lost.tolist() == [*whole.tolist(), [0.0] * 5]


def test_groups_are_normalised_each_by_itself():
    both = advantages([FULL, FULL, EMPTY, EMPTY], groups=[0, 1, 0, 1])
    assert np.sign(both[:, 1]).tolist() == [1, 1, -1, -1]


def test_the_attempts_at_one_question_are_credited_each_at_its_own_length():
    def attempt(stage_ids):
        ids = tuple(range(len(stage_ids)))
        tokens = RolloutTokens(ids=ids, stage_ids=stage_ids, logprobs=(0.0,) * len(ids), prompt_length=1)
        return SimpleNamespace(tokens=tokens, is_valid=True)

    rows = group_advantages([attempt((-1, 0, -1, 3)), attempt((-1, 0))], [FULL, EMPTY])
    assert rows == [[pytest.approx(1.0), 0.0, pytest.approx(1.0)], [pytest.approx(-1.0)]]


def attempt(tokens):
    return SimpleNamespace(tokens=tokens)


def test_the_completion_is_all_after_the_prompt():
    tokens = RolloutTokens(ids=(7, 8, 9), stage_ids=(-1, 0, -1), logprobs=(0.0, -0.5, 0.0), prompt_length=1)
    assert completion_of(attempt(tokens)) == ([8, 9], [0, -1], [-0.5, 0.0])


def test_an_episode_that_failed_before_its_first_token_is_one_masked_token():
    tokens = RolloutTokens(ids=(7, 8), stage_ids=(-1, -1), logprobs=(0.0, 0.0), prompt_length=2)
    assert completion_of(attempt(tokens)) == ([8], [-1], [0.0])


def test_a_policy_without_tokens_is_refused():
    with pytest.raises(UsageError, match="needs one with a token mode"):
        tokens_of(attempt(None))


@pytest.mark.parametrize("read", [tokens_of, completion_of, lambda one: group_advantages([one], [FULL])])
def test_an_attempt_of_several_windows_is_refused(read):
    tokens = RolloutTokens(
        ids=(7, 8, 7, 9), stage_ids=(-1, 0, -1, 3), logprobs=(0.0,) * 4, prompt_length=1, window_starts=(0, 2)
    )
    with pytest.raises(UsageError, match="has 2 windows, each with a prompt of its own"):
        read(attempt(tokens))


def test_the_turns_of_the_policy_are_the_runs_of_its_tokens_whatever_stage_they_are_in():
    assert policy_runs([-1, 0, 0, 1, -1, -1, 3]) == [(1, 4), (6, 7)]
    assert policy_runs([-1, -1]) == []
