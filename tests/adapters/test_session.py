"""One episode as libraries step it."""

import pytest

from docs.adapters.tutor import tutored_query
from rubricem_env.adapters.session import EpisodeSession, make_setup, turn_rewards, turns_of_stage
from rubricem_env.domain.base import STAGES, Stage
from rubricem_env.domain.errors import ConfigError, OrderError, UsageError
from rubricem_env.domain.judgement import Judgement, StageScore
from rubricem_env.domain.trajectory import Ending
from rubricem_env.env.rewards import ScoreEach
from tests.adapters.golden_group import tutor

SCORES = {Stage.PLAN: 0.5, Stage.RESEARCH: 0.25, Stage.REVIEW: 0.125, Stage.ANSWER: 1.0}
SCORER = ScoreEach(lambda trajectory: Judgement.of({stage: StageScore(score=SCORES[stage]) for stage in STAGES}))


async def play(setup):
    session, write = EpisodeSession(setup, tutored_query(), seed=0), tutor(0)
    steps = [await session.step(write(session.prompt))]
    while not steps[-1].is_over:
        steps.append(await session.step(write(steps[-1].observation)))
    return session, steps


async def test_stagewise_the_plan_is_paid_at_once_and_the_rest_at_the_end():
    _, steps = await play(make_setup(reward="stagewise", scorer=SCORER))
    assert [step.reward for step in steps] == [0.5, 0, 0, 0, 1.375]


async def test_the_whole_vector_is_told_at_the_end_whatever_is_paid():
    session, steps = await play(make_setup(reward="answer", scorer=SCORER))
    told = steps[-1].info
    assert [told[f"score_{stage.value}"] for stage in STAGES] == [0.5, 0.25, 0.125, 1.0]
    assert (steps[-1].reward, steps[-1].terminated) == (1.0, True)
    assert "score_plan" not in steps[0].info
    assert session.is_over


async def test_without_a_scorer_nothing_is_paid_and_nothing_is_told():
    session, steps = await play(make_setup())
    assert {step.reward for step in steps} == {0.0}
    assert session.judgement is None
    assert not any(name.startswith("score_") for name in steps[-1].info)


async def test_a_finished_episode_is_not_stepped_on():
    session, _ = await play(make_setup())
    with pytest.raises(OrderError, match="start another"):
        await session.step("more")


async def test_an_abandoned_episode_says_so_and_a_finished_one_keeps_its_ending():
    session = EpisodeSession(make_setup(), tutored_query())
    session.abandon()
    assert session.trajectory.ending is Ending.ABANDONED
    done, _ = await play(make_setup())
    done.abandon()
    assert done.trajectory.ending is Ending.ANSWERED


def test_an_unknown_key_and_a_reward_without_scorer_are_refused():
    with pytest.raises(UsageError, match="names none of the"):
        make_setup().query("nothing")
    with pytest.raises(ConfigError, match="needs a scorer"):
        make_setup(reward="answer")


async def test_turn_rewards_stand_where_stages_end_and_absent_scores_add_nothing():
    session, steps = await play(make_setup(reward="answer", scorer=SCORER))
    # Plan in turn 1; research ends in turn 4; review and answer in turn 5: 0.125 + 1.
    assert turn_rewards(session.trajectory, session.judgement) == [0.5, None, None, 0.25, 1.125]
    partial = Judgement.of({Stage.ANSWER: StageScore(score=0.0)})
    assert turn_rewards(session.trajectory, partial) == [None, None, None, None, 0.0]
    assert len(steps) == 5


async def test_a_turn_that_reviews_and_answers_belongs_to_both_stages():
    session, _ = await play(make_setup())
    turns = {stage.value: turns_of_stage(session.trajectory, stage) for stage in STAGES}
    # The tutor plans and calls in its first turn, and reviews and answers in its fifth.
    assert turns == {"plan": {0}, "research": {0, 1, 2, 3}, "review": {4}, "answer": {4}}
