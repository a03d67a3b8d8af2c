"""Rollouts of a group are brought together, and a group that is cut short is said."""

import asyncio

import pytest

from rubricem_env.adapters.session import EpisodeSession
from rubricem_env.domain.base import Stage
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.judgement import Judgement, StageScore
from rubricem_env.domain.trajectory import Ending, Origin, Query, Segment, Trajectory
from rubricem_env.env.rewards import GatheringScorer
from rubricem_env.env.spec import make_env_spec
from tests.rubricem_env.env.conftest import ANSWER, CALL, PLAN
from tests.rubricem_env.env.test_rewards import FullMarks


class CountingScorer:
    """Scores each attempt with its share of the group; remembers the sizes of the groups."""

    def __init__(self, failure=None):
        self.sizes = []
        self._failure = failure

    async def score(self, trajectories):
        self.sizes.append(len(trajectories))
        if self._failure is not None:
            raise self._failure
        scores = [float(trajectory.policy_text) for trajectory in trajectories]
        return [Judgement.of({Stage.ANSWER: StageScore(score=score)}) for score in scores]


def attempt(score, *, question="Who?", ending=Ending.ANSWERED):
    return Trajectory(question=question, segments=(Segment(origin=Origin.POLICY, text=str(score)),), ending=ending)


async def answers(scorer, attempts):
    judged = await asyncio.gather(*(scorer.score([each]) for each in attempts))
    return [judgements[0].score(Stage.ANSWER) for judgements in judged]


async def test_each_attempt_gets_its_own_judgement_of_one_call_for_the_group():
    inner = CountingScorer()
    scores = [0.1, 0.2, 0.3]
    assert await answers(GatheringScorer(inner, 3), [attempt(score) for score in scores]) == scores
    assert inner.sizes == [3]


async def test_a_fifth_attempt_opens_the_next_group():
    inner = CountingScorer()
    await answers(GatheringScorer(inner, 2), [attempt(0.1) for _ in range(4)])
    assert inner.sizes == [2, 2]


async def test_questions_do_not_mix():
    inner = CountingScorer()
    mixed = [attempt(0.1), attempt(0.2, question="Where?"), attempt(0.3), attempt(0.4, question="Where?")]
    assert await answers(GatheringScorer(inner, 2), mixed) == [0.1, 0.2, 0.3, 0.4]


async def test_a_group_cut_short_is_judged_and_said():
    inner = CountingScorer()
    with pytest.warns(UserWarning, match=r"a group of 4 is incomplete: 2 attempts came within 0.02 s"):
        assert await answers(GatheringScorer(inner, 4, patience=0.02), [attempt(0.1), attempt(0.2)]) == [0.1, 0.2]
    assert inner.sizes == [2]


async def test_an_attempt_that_comes_after_the_cut_is_of_a_new_group():
    scorer = GatheringScorer(CountingScorer(), 2, patience=0.02)
    with pytest.warns(UserWarning, match="group of 2 is incomplete: 1 attempts"):
        assert await answers(scorer, [attempt(0.1)]) == [0.1]
    assert await answers(scorer, [attempt(0.2), attempt(0.3)]) == [0.2, 0.3]


async def test_an_attempt_that_is_cancelled_leaves_the_others_their_scores():
    scorer = GatheringScorer(CountingScorer(), 2)
    first = asyncio.create_task(scorer.score([attempt(0.1)]))
    await asyncio.sleep(0)
    first.cancel()
    assert await answers(scorer, [attempt(0.2)]) == [0.2]


async def test_an_episode_that_still_runs_is_not_held_back():
    assert await answers(GatheringScorer(CountingScorer(), 8), [attempt(0.5, ending=None)]) == [0.5]


async def test_a_scorer_that_raises_raises_for_every_attempt():
    scorer = GatheringScorer(CountingScorer(failure=UsageError("no")), 2)
    found = await asyncio.gather(*(scorer.score([attempt(0.1)]) for _ in range(2)), return_exceptions=True)
    assert [str(one) for one in found] == ["no", "no"]


@pytest.mark.parametrize(("size", "patience"), [(0, 1.0), (4, 0.0)])
def test_settings_without_sense_are_refused(size, patience):
    with pytest.raises(UsageError, match="at least 1 and above 0"):
        GatheringScorer(CountingScorer(), size, patience=patience)


@pytest.mark.parametrize(
    ("size", "asked", "paid"),
    # Gathered, the four stages are paid at the end; alone, the plan at once and the other three at the end.
    [(2, [["Who?", "Who?"]], [0.0, 4.0]), (1, [["Who?"]] * 4, [1.0, 3.0])],
)
async def test_the_plans_of_a_gathered_group_are_judged_together_with_the_rest(size, asked, paid):
    inner = FullMarks()
    env_spec = make_env_spec(reward="stagewise", scorer=GatheringScorer(inner, size, patience=5))

    async def play():
        session = EpisodeSession(env_spec, Query(question="Who?"))
        return [(await session.step(text)).reward for text in (PLAN + CALL, ANSWER)]

    assert await asyncio.gather(play(), play()) == [paid, paid]
    assert inner.asked == asked
