"""The bare episode: what every library's lane must give as well."""

import asyncio

import numpy as np
import pytest

from docs.adapters.tutor import tutored_query
from rubricem_agent.learn.credit import PAPER_MATRIX, assign_credit
from rubricem_env.adapters.session import EpisodeSession
from rubricem_env.env.rewards import GatheringScorer
from rubricem_env.env.spec import make_env_spec
from tests.adapters.golden_group import (
    GOLDEN,
    SIZE,
    assert_golden_judgements,
    assert_golden_scores,
    group_scorer,
    tutor,
)


async def play(env_spec, place):
    session, write = EpisodeSession(env_spec, tutored_query(), seed=place), tutor(place)
    step = await session.step(write(session.prompt))
    while not step.is_over:
        step = await session.step(write(step.observation))
    return session, step


async def test_the_bare_group_scores_as_written_down():
    env_spec = make_env_spec()
    sessions = [(await play(env_spec, place))[0] for place in range(SIZE)]
    assert_golden_judgements(await group_scorer().score([session.trajectory for session in sessions]))


async def test_episodes_that_are_scored_one_by_one_and_gathered_score_the_same():
    env_spec = make_env_spec(reward="answer", scorer=GatheringScorer(group_scorer(), SIZE))
    played = await asyncio.gather(*(play(env_spec, place) for place in range(SIZE)))
    assert_golden_judgements([session.judgement for session, _ in played])
    rows = [[step.info[f"score_{name}"] for name in ("plan", "research", "review", "answer")] for _, step in played]
    assert_golden_scores(rows)
    assert [step.reward for _, step in played] == [row[3] for row in rows]


def test_credit_gives_each_token_the_golden_advantage_of_its_stage():
    credit = assign_credit(GOLDEN["scores"], matrix=PAPER_MATRIX)
    spread = credit.spread(np.array([[0, 0, -1, 1, 2, 3]] * SIZE))
    for tokens, (plan, research, review, answer) in zip(spread, GOLDEN["advantages"], strict=True):
        assert tokens.tolist() == pytest.approx([plan, plan, 0.0, research, review, answer])
