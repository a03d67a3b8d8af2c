"""The bare episode: what every library's lane must give as well."""

import asyncio

from docs.adapters.tutor import tutored_query
from rubricem_env.adapters.gathering import GatheringScorer
from rubricem_env.adapters.session import Session, make_setup
from tests.adapters.golden_group import SIZE, assert_golden_judgements, assert_golden_scores, group_scorer, tutor


async def play(setup, place):
    session, write = Session(setup, tutored_query(), seed=place), tutor(place)
    step = await session.step(write(session.prompt))
    while not step.is_over:
        step = await session.step(write(step.observation))
    return session, step


async def test_the_bare_group_scores_as_written_down():
    setup = make_setup()
    sessions = [(await play(setup, place))[0] for place in range(SIZE)]
    assert_golden_judgements(await group_scorer().score([session.trajectory for session in sessions]))


async def test_episodes_that_are_scored_one_by_one_and_gathered_score_the_same():
    setup = make_setup(reward="answer", scorer=GatheringScorer(group_scorer(), SIZE))
    played = await asyncio.gather(*(play(setup, place) for place in range(SIZE)))
    assert_golden_judgements([session.judgement for session, _ in played])
    rows = [[step.info[f"score_{name}"] for name in ("plan", "research", "review", "answer")] for _, step in played]
    assert_golden_scores(rows)
    assert [step.reward for _, step in played] == [row[3] for row in rows]
